package evring

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// New makes a ring: a sealed memfd, with all pages populated, and an eventfd. A nil Config means the zero
// value.
func New(cfg *Config) (*Ring, error) {
	s, err := cfg.shape()
	if err != nil {
		return nil, err
	}
	name := "evring"
	if cfg != nil && cfg.Name != "" {
		name = cfg.Name
	}
	memfd, err := createMemfd(name)
	if err != nil {
		return nil, fmt.Errorf("penstock: evring: new: %w", os.NewSyscallError("memfd_create", err))
	}
	m, err := makeMemory(memfd, s)
	if err != nil {
		sys.Close(memfd)
		return nil, fmt.Errorf("penstock: evring: new: %w", err)
	}
	eventfd, err := sys.Eventfd()
	if err != nil {
		sys.Munmap(m)
		sys.Close(memfd)
		return nil, fmt.Errorf("penstock: evring: new: %w", os.NewSyscallError("eventfd", err))
	}
	return own(newRing(s, m), memfd, eventfd), nil
}

// createMemfd makes a memfd that can never be executed, because some systems insist on that (vm.memfd_noexec).
// Linux before 6.3 does not know that flag.
func createMemfd(name string) (int, error) {
	const flags = sys.MFD_CLOEXEC | sys.MFD_ALLOW_SEALING
	fd, err := sys.MemfdCreate(name, flags|sys.MFD_NOEXEC_SEAL)
	if err == syscall.EINVAL {
		return sys.MemfdCreate(name, flags)
	}
	return fd, err
}

// seals keep the mapping whole: no process can shorten the file, or remove the seals. They do not prevent
// writes, or holes, which read as zeros.
const seals = sys.F_SEAL_SHRINK | sys.F_SEAL_GROW | sys.F_SEAL_SEAL

// makeMemory sets the length of a memfd, populates it, and adds the header and the seals.
func makeMemory(memfd int, s shape) (memory, error) {
	if err := sys.Ftruncate(memfd, int64(s.bytes())); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	b, err := sys.MmapShared(memfd, s.bytes())
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// EINVAL: Linux before 5.14, which makes pages at the first touch.
	if err := sys.Madvise(b, sys.MADV_POPULATE_WRITE); err != nil && err != syscall.EINVAL {
		sys.Munmap(b)
		return nil, os.NewSyscallError("madvise", err)
	}
	memory(b).describe(s)
	if err := sys.AddSeals(memfd, seals); err != nil {
		sys.Munmap(b)
		return nil, os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	return b, nil
}

// Open joins a ring that another Ring has made, most often in another process, by its two descriptors. The new
// Ring owns both; if Open fails, the caller still owns them.
//
// Open trusts neither: the memfd must have ordinary pages, be sealed (ErrUnsealed), and be exactly as long as its
// header says, which must make sense (ErrCorrupt); the eventfd must not block. All holders of the eventfd share
// its O_NONBLOCK: a peer that clears it and then fills the counter can make a goroutine that wakes the consumer
// wait in its write.
func Open(memfd, eventfd int) (*Ring, error) {
	if err := checkEventfd(eventfd); err != nil {
		return nil, fmt.Errorf("penstock: evring: open: %w", err)
	}
	size, err := checkMemfd(memfd)
	if err != nil {
		return nil, fmt.Errorf("penstock: evring: open: %w", err)
	}
	b, err := sys.MmapShared(memfd, size)
	if err != nil {
		return nil, fmt.Errorf("penstock: evring: open: %w", os.NewSyscallError("mmap", err))
	}
	s, err := memory(b).read()
	if err != nil {
		sys.Munmap(b)
		return nil, fmt.Errorf("penstock: evring: open: %w", err)
	}
	return own(newRing(s, b), memfd, eventfd), nil
}

// checkMemfd returns the size of a memfd, and makes sure that it cannot change.
func checkMemfd(fd int) (int, error) {
	got, err := sys.GetSeals(fd)
	switch {
	case err == syscall.EINVAL:
		return 0, fmt.Errorf("%w: the descriptor is not a memfd", ErrUnsealed)
	case err != nil:
		return 0, os.NewSyscallError("fcntl F_GET_SEALS", err)
	case got&seals != seals:
		return 0, fmt.Errorf("%w: its seals are %#x, not F_SEAL_SEAL|SHRINK|GROW (%#x)", ErrUnsealed, got&seals, seals)
	}
	// A hole in huge pages may not be filled again; then touching it raises SIGBUS.
	if magic, err := sys.FstatfsType(fd); err != nil || magic != sys.TMPFS_MAGIC {
		return 0, fmt.Errorf("%w: the memfd does not have ordinary pages", ErrUnsealed)
	}
	size, err := sys.FstatSize(fd)
	if err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	if size <= headerSize || size > headerSize+MaxBytes {
		return 0, fmt.Errorf("%w: the memfd has %d bytes", ErrCorrupt, size)
	}
	return int(size), nil
}

// checkEventfd refuses a descriptor that is certainly no eventfd, and an eventfd that blocks.
func checkEventfd(fd int) error {
	mode, err := sys.FstatMode(fd)
	if err != nil {
		return os.NewSyscallError("fstat", err)
	}
	flags, err := sys.GetFl(fd)
	if err != nil {
		return os.NewSyscallError("fcntl F_GETFL", err)
	}
	if mode&sys.S_IFMT != 0 || flags&sys.O_NONBLOCK == 0 {
		return fmt.Errorf("descriptor %d: it is no non-blocking eventfd: pass the one of Files", fd)
	}
	return nil
}

// own gives a Ring its descriptors, and unmaps its memory once nobody can use the Ring.
func own(r *Ring, memfd, eventfd int) *Ring {
	r.descriptors.own(memfd, eventfd)
	runtime.AddCleanup(r, func(b []byte) { sys.Munmap(b) }, []byte(r.memory))
	return r
}

// Close gives up this Ring's descriptors; it does not affect other Rings or the ring itself. Afterwards pushing
// and popping return ErrClosed. The memory is unmapped when the Ring has been collected. A second Close returns
// ErrClosed.
func (r *Ring) Close() error {
	for {
		was := r.state.Load()
		if was == stateClosed {
			return ErrClosed
		}
		if r.state.CompareAndSwap(was, stateClosed) {
			r.done()
			return nil
		}
	}
}
