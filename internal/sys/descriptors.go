package sys

// KeptDescriptors returns how many of a process's descriptors, of which it may have n (RLIMIT_NOFILE), are kept for what must go on
// while connections take all others: an administrator, a reload, checks. The kernel gives out the lowest free descriptor (fs/file.c,
// alloc_fd), so whoever gets one of n - KeptDescriptors(n) or above knows that nearly all are taken, and gives it back.
func KeptDescriptors(n int) int { return min(max(n/128, min(32, n/4)), 512) }
