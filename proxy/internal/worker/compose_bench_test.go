package worker_test

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/vecio"
)

// BenchmarkCompose compares the bytes that a core composes for one send, a PROXY header and a hello or the text of
// a response, with a gathered write of the same. A figure is the CPU time of the sending thread, in pairs of
// rounds that take turns: above 1 vecio costs more. A session sends once, so a writer has to be opened for its
// socket: by ResetSocket of one that the core keeps, or by NewSocket. "kept" leaves that out, and is no way
// that the program could take.
func BenchmarkCompose(b *testing.B) {
	for name, sizes := range map[string][]int{
		"header_28_hello_200":   {28, 200},
		"header_52_hello_517":   {52, 517},
		"header_200_hello_2000": {200, 2000},
		"response_120":          {120},
		"response_2000":         {2000},
	} {
		b.Run(name, func(b *testing.B) { compose(b, sizes) })
	}
}

func compose(b *testing.B, sizes []int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	client, server := sockets.TCPPair(b)
	far := sockets.FD(b, server)
	fd := sockets.FD(b, client)
	core, err := vecio.NewSocket(fd, nil)
	if err != nil {
		b.Fatal(err)
	}
	kept, err := vecio.NewSocket(fd, nil)
	if err != nil {
		b.Fatal(err)
	}
	pieces := make([][]byte, len(sizes))
	for i, n := range sizes {
		pieces[i] = make([]byte, n)
	}
	var buf []byte
	ways := []func() error{
		func() error { // as it is
			all := pieces[0]
			if len(pieces) > 1 {
				buf = append(append(buf[:0], pieces[0]...), pieces[1]...)
				all = buf
			}
			n, err := worker.SendSome(fd, all, 0)
			if n < len(all) {
				return fmt.Errorf("%d bytes of %d, %w", n, len(all), err)
			}
			return nil
		},
		func() error { return gather(kept, pieces) },
		func() error {
			if err := core.ResetSocket(fd); err != nil {
				return err
			}
			return gather(core, pieces)
		},
		func() error {
			w, err := vecio.NewSocket(fd, nil)
			if err != nil {
				return err
			}
			if err := gather(w, pieces); err != nil {
				return err
			}
			return w.Close()
		},
	}
	took := measured(b, ways, func() { empty(b, far) })
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(took[0], 0.5), "ns-as-it-is")
	for i, unit := range []string{"kept", "ResetSocket", "NewSocket"} {
		ratios := make([]float64, len(took[0]))
		for j := range ratios {
			ratios[j] = took[i+1][j] / took[0][j]
		}
		b.ReportMetric(quantile(ratios, 0.5), unit+"-ratio")
	}
}

// gather sends the pieces by a writer.
func gather(w *vecio.Writer, pieces [][]byte) error {
	for _, p := range pieces {
		if err := w.Append(p); err != nil {
			return err
		}
	}
	return w.Flush()
}

// measured returns, for each way, the CPU time of a send in ns in each round, after which the peer reads. The order
// of the ways changes.
func measured(b *testing.B, ways []func() error, read func()) [][]float64 {
	const sends = 32
	took := make([][]float64, len(ways))
	first := 0
	for b.Loop() {
		for i := range ways {
			way := (first + i) % len(ways)
			begin := used(b)
			for range sends {
				if err := ways[way](); err != nil {
					b.Fatal(err)
				}
			}
			took[way] = append(took[way], float64(used(b)-begin)/sends)
			read()
		}
		first++
	}
	return took
}

// used is the CPU time of this thread.
func used(b *testing.B) time.Duration {
	d, err := sys.ThreadCPUTime()
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func quantile(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[int(float64(len(x)-1)*q)]
}

// empty throws away what has come.
func empty(b *testing.B, fd int) {
	buf := make([]byte, 256<<10) // which is not written to
	for {
		switch _, err := sys.Recv(fd, buf, sys.MSG_DONTWAIT|sys.MSG_TRUNC); err {
		case nil:
		case syscall.EAGAIN:
			return
		default:
			b.Fatal(err)
		}
	}
}
