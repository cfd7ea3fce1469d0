package feature

import "github.com/penstock/penstock/internal/sys"

var (
	ioUring = Probe{Do: tryIoUring}
	bpf     = Probe{Do: func() error { return tryBPF("bpf", sys.BPF_MAP_TYPE_HASH) }}
	sockmap = Probe{Do: func() error { return tryBPF("sockmap", sys.BPF_MAP_TYPE_SOCKMAP) }}
)

// IoUring reports whether this process may make a ring with io_uring_setup(2).
func IoUring() error { return ioUring.Supported() }

// BPF reports whether this process may make a map with bpf(2), the least that a BPF program
// needs.
func BPF() error { return bpf.Supported() }

// Sockmap reports whether this process may make a map of sockets (BPF_MAP_TYPE_SOCKMAP), which
// needs CAP_NET_ADMIN as well.
func Sockmap() error { return sockmap.Supported() }

func tryIoUring() error {
	fd, err := sys.IoUringSetup(2, &sys.IoUringParams{})
	if err != nil {
		return judge("io_uring", "io_uring_setup", err)
	}
	return sys.Close(fd)
}

func tryBPF(feature string, mapType uint32) error {
	fd, err := sys.BPFMapCreate(mapType, 4, 4, 1)
	if err != nil {
		return judge(feature, "bpf BPF_MAP_CREATE", err)
	}
	return sys.Close(fd)
}
