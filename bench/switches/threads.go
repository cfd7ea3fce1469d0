package switches

import (
	"context"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// maxThreads is more than a kernel gives: which of its limits is met first
// should not be hidden by the runtime's own, 10,000 (debug.SetMaxThreads).
const maxThreads = 1 << 22

// permits is GOMAXPROCS of the threads' server. A thread that comes back from a system call
// needs one of the runtime's permits to go on. With one for each CPU, those that hold one hand
// it from request to request, and the others starve: of 1,000 connections a few had answers in
// 40 microseconds, and some waited for more than a second. With this many the kernel decides
// which thread runs, which is the subject of the measurement.
const permits = 256

// serveThreads serves each connection by a thread that blocks in recv(2) and
// send(2) on a blocking descriptor. One more thread blocks in accept4(2).
func serveThreads(ctx context.Context, l *net.TCPListener, open *census) error {
	defer debug.SetMaxThreads(debug.SetMaxThreads(maxThreads))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(permits))
	f, err := l.File() // the same socket, by a descriptor of our own
	_ = l.Close()
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd()) // blocking from here on
	// A listener that is shut down ends the accept with EINVAL.
	defer context.AfterFunc(ctx, func() { _ = sys.ShutdownBoth(fd) })()
	var all sync.WaitGroup
	defer all.Wait()
	var accepted []int // owned here
	defer func() {
		for _, c := range accepted {
			_ = sys.Close(c)
		}
	}()
	for {
		c, err := accept(fd)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return os.NewSyscallError("accept4", err)
		}
		if accepted = append(accepted, c); !pending(fd) {
			serveTogether(accepted, &all, open)
			accepted = nil
		}
	}
}

// pending reports whether another connection waits to be accepted.
func pending(listener int) bool {
	n, err := sys.Poll(listener, sys.POLLIN)
	return err == nil && n != 0
}

// serveTogether serves connections, which it owns, once each has its thread. The
// kernel is fair to threads: one that accepts, or makes threads, has but its share
// beside thousands that serve, and would take minutes.
func serveTogether(conns []int, all *sync.WaitGroup, open *census) {
	var ready sync.WaitGroup
	begin := make(chan struct{})
	for _, c := range conns {
		ready.Add(1)
		all.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			<-begin
			echoBlocking(c, open)
		})
	}
	ready.Wait()
	close(begin)
}

// accept waits for a connection and returns a blocking descriptor, which the
// caller owns.
func accept(listener int) (int, error) {
	for {
		fd, err := sys.Accept4(listener, sys.SOCK_CLOEXEC)
		if err != syscall.EINTR && err != syscall.ECONNABORTED {
			return fd, err
		}
	}
}

// echoBlocking is echo for a thread and a descriptor, which it owns. The goroutine
// is locked to the thread and never unlocked, so the thread ends with it.
func echoBlocking(fd int, open *census) {
	defer sys.Close(fd)
	ticket := open.enter(func() { _ = sys.ShutdownBoth(fd) })
	defer open.leave(ticket)
	// As the net package does with its connections.
	_ = sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1)
	buf := make([]byte, bufferSize)
	for {
		n, err := sys.Recv(fd, buf, 0)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || n == 0:
			return
		}
		if !sendAll(fd, buf[:n]) {
			return
		}
		open.echoed.Add(int64(n))
	}
}

// sendAll sends all of b, and reports whether it could.
func sendAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := sys.Send(fd, b, sys.MSG_NOSIGNAL)
		if err != nil && err != syscall.EINTR {
			return false
		}
		b = b[n:]
	}
	return true
}
