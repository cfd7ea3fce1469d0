package listener_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/listener"
)

// script makes a call of accept fail with the error that is sent, or work if that
// is nil; after fails is closed it works.
type script struct {
	*server
	fails  chan error
	calls  chan struct{}  // one element for each call of accept
	ticks  chan time.Time // the clock
	waited chan struct{}  // one element for each pause that has begun
}

func startScript(t *testing.T) *script {
	t.Helper()
	s := &script{
		fails: make(chan error), calls: make(chan struct{}, 100),
		ticks: make(chan time.Time), waited: make(chan struct{}, 100),
	}
	l := listen(t, "127.0.0.1:0", &listener.Config{Limit: listener.NewLimit(10)})
	l.SetAfter(func(d time.Duration) <-chan time.Time {
		if d != 100*time.Millisecond {
			t.Errorf("the pause is %v", d)
		}
		s.waited <- struct{}{}
		return s.ticks
	})
	l.WrapAccept(func(accept func() (net.Conn, error)) (net.Conn, error) {
		s.calls <- struct{}{}
		if err := <-s.fails; err != nil {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
		}
		return accept()
	})
	s.server = start(t, l)
	return s
}

func TestExhaustionPausesAccepting(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			s := startScript(t)
			const tries = 5
			for range tries {
				<-s.calls
				s.fails <- errno
				<-s.waited
				if len(s.calls) != 0 {
					t.Fatal("accept is called although the time is not up")
				}
				s.ticks <- time.Time{}
			}
			dial(t, s.Listener)
			close(s.fails)
			<-s.conns
			s.end(t)
		})
	}
}

func TestEndOfAConnectionResumesAccepting(t *testing.T) {
	s := startScript(t)
	dial(t, s.Listener)
	<-s.calls
	s.fails <- nil
	<-s.conns
	dial(t, s.Listener)
	<-s.calls
	s.fails <- syscall.EMFILE
	<-s.waited
	s.finish <- struct{}{} // and no tick of the clock
	<-s.calls
	close(s.fails)
	<-s.conns
	s.end(t)
}

func TestFailedConnectionsAreSkipped(t *testing.T) {
	s := startScript(t)
	for _, errno := range []syscall.Errno{syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.EHOSTUNREACH} {
		<-s.calls
		s.fails <- errno
	}
	dial(t, s.Listener)
	close(s.fails)
	<-s.conns
	if len(s.waited) != 0 {
		t.Errorf("%d pauses", len(s.waited))
	}
	s.end(t)
}

func TestStopAndCloseEndAPause(t *testing.T) {
	for name, end := range map[string]func(*script){
		"stop":  func(s *script) { s.stop() },
		"close": func(s *script) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startScript(t)
			<-s.calls
			s.fails <- syscall.EMFILE
			<-s.waited
			end(s)
			if err := <-s.done; err != nil {
				t.Error(err)
			}
			if len(s.calls) != 0 {
				t.Error("accept was called with nothing in the queue")
			}
		})
	}
}

// A connection that is queued when accepting stops is served though descriptors
// are short just then.
func TestExhaustionWhileTheQueueIsEmptied(t *testing.T) {
	s := startScript(t)
	dial(t, s.Listener)
	<-s.calls
	s.fails <- syscall.EMFILE
	<-s.waited
	s.stop()
	<-s.calls
	s.fails <- syscall.EMFILE
	<-s.waited
	s.ticks <- time.Time{}
	close(s.fails)
	<-s.conns
	s.end(t)
}

func TestListenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := listener.Listen(ctx, parse(t, "name.invalid:0"), nil)
	if err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error is %v", err)
	}
}
