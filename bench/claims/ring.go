package claims

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"syscall"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
)

// ringBatch is how many events a batch has.
const ringBatch = 64

// measureRing compares a ring's events with those of an eventfd that is written for each: in
// batches and one by one, with no thread asleep, and one event to a thread that sleeps.
func measureRing(ctx context.Context) (r Result, err error) {
	ring, err := evring.New(&evring.Config{Producers: evring.Multi})
	if err != nil {
		return r, err
	}
	defer ring.Close()
	event, err := sys.Eventfd()
	if err != nil {
		return r, os.NewSyscallError("eventfd2", err)
	}
	defer sys.Close(event)
	const batches, single, counter = "ring, batches of 64", "ring, one by one", "an eventfd written for each"
	var fails failure
	times, err := alternate(
		ctx, 150,
		contestant{batches, ringTurns(ring, ringBatch, &fails)},
		contestant{single, ringTurns(ring, 1, &fails)},
		contestant{counter, eventfdTurns(event, &fails)},
	)
	if err == nil {
		err = fails.err()
	}
	if err != nil {
		return r, err
	}
	wakes, err := measureWakes(ctx)
	r.Figures = append([]Figure{
		times.median(batches, 1), times.median(single, 1), times.median(counter, 1),
		times.ratio(counter, batches), times.ratio(counter, single),
	}, wakes...)
	return r, err
}

// ringTurns pushes 64 events, by so many at a time, and drains them.
func ringTurns(r *evring.Ring, by int, fails *failure) func(n int) {
	in := make([][]byte, by)
	for i := range in {
		in[i] = binary.NativeEndian.AppendUint64(nil, uint64(i))
	}
	return func(n int) {
		for got := 0; got < n; {
			for range ringBatch / by {
				_, err := r.PushBatch(in)
				fails.note(err)
			}
			k, err := r.Drain(0, func([]byte) {})
			fails.note(err)
			if k == 0 {
				return
			}
			got += k
		}
	}
}

// eventfdTurns writes an eventfd 64 times, and reads it once.
func eventfdTurns(fd int, fails *failure) func(n int) {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	var sum [8]byte
	return func(n int) {
		for i := range n {
			_, err := sys.Write(fd, one)
			fails.note(err)
			if i%ringBatch == ringBatch-1 {
				_, err = sys.Read(fd, sum[:])
				fails.note(err)
			}
		}
	}
}

// measureWakes has two threads wake each other, by a ring each and by an eventfd each.
func measureWakes(ctx context.Context) ([]Figure, error) {
	const ring, counter = "one event to a sleeper, ring", "one event to a sleeper, eventfd"
	rings, err := newWakers(newRingWaker)
	if err != nil {
		return nil, err
	}
	defer rings.close()
	counters, err := newWakers(newEventfdWaker)
	if err != nil {
		return nil, err
	}
	defer counters.close()
	var fails failure
	times, err := alternate(
		ctx, 150,
		contestant{ring, func(n int) { fails.note(rings.turns(n)) }},
		contestant{counter, func(n int) { fails.note(counters.turns(n)) }},
	)
	if err == nil {
		err = fails.err()
	}
	if err != nil {
		return nil, err
	}
	return []Figure{times.median(ring, 0.5), times.median(counter, 0.5), times.ratio(ring, counter)}, nil
}

// A waker has a thread that sleeps in epoll_wait go on.
type waker interface {
	wake() error
	wait() error
	close()
}

// wakers are those of two threads.
type wakers [2]waker

func newWakers(make func() (waker, error)) (w wakers, err error) {
	for i := range w {
		if w[i], err = make(); err != nil {
			w.close()
			return w, err
		}
	}
	return w, nil
}

func (w *wakers) close() {
	for _, one := range w {
		if one != nil {
			one.close()
		}
	}
}

// turns has the second thread wake the first so many times, and the first the second.
func (w *wakers) turns(n int) error {
	failed := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			if err = w[1].wait(); err == nil {
				err = w[0].wake()
			}
		}
		failed <- err
	}()
	var err error
	for i := 0; i < n && err == nil; i++ {
		if err = w[1].wake(); err == nil {
			err = w[0].wait()
		}
	}
	return errors.Join(err, <-failed)
}

// wakePatience bounds a wait: a wake-up that got lost ends the benchmark. In milliseconds.
const wakePatience = 10_000

var errNotWoken = errors.New("no wake-up within 10 s")

// sleeper waits in epoll for a descriptor.
type sleeper struct{ epoll int }

func newSleeper(fd int) (s sleeper, err error) {
	if s.epoll, err = sys.EpollCreate1(); err != nil {
		return s, os.NewSyscallError("epoll_create1", err)
	}
	if err = sys.EpollCtl(s.epoll, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: sys.EPOLLIN}); err != nil {
		sys.Close(s.epoll)
		return s, os.NewSyscallError("epoll_ctl", err)
	}
	return s, nil
}

func (s *sleeper) sleep() error {
	var events [1]sys.EpollEvent
	for {
		n, err := sys.EpollWait(s.epoll, events[:], wakePatience)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return os.NewSyscallError("epoll_wait", err)
		case n == 0:
			return errNotWoken
		default:
			return nil
		}
	}
}

type ringWaker struct {
	sleeper
	ring *evring.Ring
}

func newRingWaker() (waker, error) {
	r, err := evring.New(&evring.Config{Producers: evring.Multi})
	if err != nil {
		return nil, err
	}
	s, err := newSleeper(r.Eventfd())
	if err != nil {
		r.Close()
		return nil, err
	}
	return &ringWaker{s, r}, nil
}

func (w *ringWaker) wake() error { return w.ring.Push([]byte{1}) }

func (w *ringWaker) wait() error {
	for {
		n, err := w.ring.Drain(0, func([]byte) {})
		if n > 0 || err != nil {
			return err
		}
		slept := w.ring.Sleep()
		if slept {
			err = w.sleep()
		}
		w.ring.Awake(slept)
		if err != nil {
			return err
		}
	}
}

func (w *ringWaker) close() {
	sys.Close(w.epoll)
	w.ring.Close()
}

type eventfdWaker struct {
	sleeper
	fd int // owned
}

func newEventfdWaker() (waker, error) {
	fd, err := sys.Eventfd()
	if err != nil {
		return nil, os.NewSyscallError("eventfd2", err)
	}
	s, err := newSleeper(fd)
	if err != nil {
		sys.Close(fd)
		return nil, err
	}
	return &eventfdWaker{s, fd}, nil
}

func (w *eventfdWaker) wake() error {
	_, err := sys.Write(w.fd, binary.NativeEndian.AppendUint64(nil, 1))
	return os.NewSyscallError("write", err)
}

func (w *eventfdWaker) wait() error {
	if err := w.sleep(); err != nil {
		return err
	}
	var sum [8]byte
	_, err := sys.Read(w.fd, sum[:])
	return os.NewSyscallError("read", err)
}

func (w *eventfdWaker) close() {
	sys.Close(w.epoll)
	sys.Close(w.fd)
}
