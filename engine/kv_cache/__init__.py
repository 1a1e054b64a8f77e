"""The KV cache's book-keeping: which block holds what, who holds it, what can be reused.

Its tour: `block_pool` (the blocks and their free list), `hashing` (what makes two blocks equal),
`manager` (block tables of requests, all-or-nothing allocation, prefix hits), `stats` (how often the
cache was asked). No tensor is touched here: the runner owns the memory, this package hands out the
numbers.
"""

from engine.kv_cache.block_pool import BlockPool
from engine.kv_cache.manager import KVCacheManager, Shortage
from engine.kv_cache.stats import PrefixCacheStats

__all__ = ["BlockPool", "KVCacheManager", "PrefixCacheStats", "Shortage"]
