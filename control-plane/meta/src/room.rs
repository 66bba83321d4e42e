//! How much of a store's disk stays free of new replicas.

/// In percent of the disk, and in bytes: of a large disk a small part is room enough to react in.
const KEPT_PERCENT: u64 = 10;
const KEPT_MAX_BYTES: u64 = 2 << 30;

/// What a new replica leaves free: the lesser of a tenth of the disk and 2 GiB. It is more than what a store
/// keeps back from its writers by default (`disk_reserve_bytes`: a tenth, at most 1 GiB), so none is placed
/// where nothing can be written.
pub fn kept_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 100 * KEPT_PERCENT).min(KEPT_MAX_BYTES)
}

/// True when others should be asked first: less than a tenth is free.
pub fn is_nearly_full(capacity_bytes: u64, free_bytes: u64) -> bool {
    free_bytes < capacity_bytes / 100 * KEPT_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn of_a_small_disk_a_tenth_is_kept_and_of_a_large_one_two_gibibytes() {
        assert_eq!(kept_bytes(1000), 100);
        assert_eq!(kept_bytes(252 * GIB), 2 * GIB);
        assert_eq!(kept_bytes(0), 0);
    }

    #[test]
    fn a_large_disk_with_some_gibibytes_left_is_nearly_full_and_still_takes_a_table() {
        assert!(is_nearly_full(252 * GIB, 9 * GIB) && 9 * GIB > kept_bytes(252 * GIB));
    }
}
