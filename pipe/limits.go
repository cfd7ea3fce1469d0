package pipe

import "github.com/penstock/penstock/internal/sys"

// limits are the kernel's limits for this process, described in pipe(7) and capabilities(7).
type limits struct {
	pageSize int

	maxSize int // bytes; /proc/sys/fs/pipe-max-size

	// soft and hard are the user's quota in pages, 0 for none:
	// /proc/sys/fs/pipe-user-pages-soft and -hard.
	soft, hard int64

	// exempt: CAP_SYS_RESOURCE or CAP_SYS_ADMIN lifts the quota (fs/pipe.c,
	// pipe_is_unprivileged_user), but only in the first user namespace, because
	// the kernel asks with capable().
	exempt bool

	descriptors int64 // RLIMIT_NOFILE, soft
}

// slots is how many pages the kernel charges for a pipe that was not resized (PIPE_DEF_BUFFERS,
// include/linux/pipe_fs_i.h). A pool lends no smaller pipe: alloc_pipe_info first charges this number anyway, and
// fewer slots hold fewer pieces.
const slots = 16

// unlimitedPages bounds the default budget of a process that no quota binds:
// 1 GiB with pages of 4 KiB.
const unlimitedPages = 1 << 18

// sizes returns the pool's size classes in bytes: powers of two from the default
// number of slots up to the largest pipe that may be made.
func (l limits) sizes() []int {
	first := l.pageSize
	for first < slots*l.pageSize && first < l.maxSize {
		first *= 2
	}
	sizes := []int{first}
	for s := 2 * first; s <= l.maxSize; s *= 2 {
		sizes = append(sizes, s)
	}
	return sizes
}

// quota returns the largest number of pages at which the kernel neither degrades nor refuses pipes, if it is
// limited. too_many_pipe_buffers_soft and _hard compare with >, so all of the quota may be used.
func (l limits) quota() (pages int64, ok bool) {
	switch {
	case l.exempt || l.soft == 0 && l.hard == 0:
		return 0, false
	case l.soft == 0:
		return l.hard, true
	case l.hard == 0:
		return l.soft, true
	}
	return min(l.soft, l.hard), true
}

// pipes returns the most pipes to have: they get a quarter of the descriptors, because each connection that
// they serve needs two of its own.
func (l limits) pipes() int64 { return max(l.descriptors/8, 1) }

// top returns the first descriptor that no pipe of a pool may have.
func (l limits) top() int { return int(l.descriptors) - sys.KeptDescriptors(int(l.descriptors)) }

// line returns the most pages to use. Unless the caller names a number, an eighth of the quota stays free for
// the user's other pipes, in this process and in others: above the quota a pipe has only 8 KiB.
func (l limits) line(want int) int64 {
	quota, bound := l.quota()
	switch {
	case want < 0:
		return 0
	case want > 0 && bound:
		return min(int64(want), quota)
	case want > 0:
		return int64(want)
	case bound:
		return quota - quota/8
	}
	return min(l.pipes()*slots, unlimitedPages)
}
