"""The KV cache's book-keeping: which block holds what, who holds it, what can be reused.

Its tour: `block_pool` (the blocks and their free list), `hashing` (what makes two blocks equal),
`group` (the block tables of one KV group), `prefix_hits` (a prefix that all groups have),
`prefix_cache` (what requests hit and enter), `room` (whether blocks suffice), `manager` (all of
them together: all-or-nothing allocation, release), `pool_books` and `integrity` (whether the books
are right), `stats` (how often the cache was asked).
No tensor is touched here: the runner owns the memory, this package hands out the numbers.
"""

from engine.kv_cache.block_pool import BlockPool
from engine.kv_cache.integrity import KVReport
from engine.kv_cache.manager import BlockIds, KVCacheManager
from engine.kv_cache.prefix_hits import PrefixHits
from engine.kv_cache.room import Shortage
from engine.kv_cache.stats import PrefixCacheStats

__all__ = [
    "BlockIds",
    "BlockPool",
    "KVCacheManager",
    "KVReport",
    "PrefixCacheStats",
    "PrefixHits",
    "Shortage",
]
