// Command events sends events to another process of the same program, first through a ring in shared memory and
// then through an eventfd that is written for each event, and reports how long each took. The reader sleeps
// when there is nothing, and only then the writer wakes it: most events of the ring need no system call. An
// event of an eventfd has no contents.
package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock/penstock/evring"
)

const readerName = "events-reader"

func main() {
	if os.Args[0] == readerName {
		if err := read(os.Args[1], os.Args[2]); err != nil {
			log.Fatal(err)
		}
		return
	}
	events := uint64(1_000_000)
	for _, way := range []string{"ring", "eventfd"} {
		took, err := send(way, events)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-8s %d events in %v: %v each\n", way, events, took.Round(time.Millisecond), took/time.Duration(events))
	}
}

// send sends events until the reader has all of them.
func send(way string, events uint64) (time.Duration, error) {
	ring, err := evring.New(&evring.Config{Producers: evring.Single})
	if err != nil {
		return 0, err
	}
	defer ring.Close()
	memory, event, err := ring.Files()
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	defer event.Close()
	reader := exec.Command("/proc/self/exe")
	reader.Args, reader.Stderr = []string{readerName, way, strconv.FormatUint(events, 10)}, os.Stderr
	reader.ExtraFiles = []*os.File{memory, event}
	if err := reader.Start(); err != nil {
		return 0, err
	}
	began := time.Now()
	one := binary.NativeEndian.AppendUint64(nil, 1)
	for n := uint64(0); n < events; {
		if way == "ring" {
			err = ring.Push(binary.NativeEndian.AppendUint64(one[:0], n))
		} else {
			_, err = syscall.Write(ring.Eventfd(), one)
		}
		switch err {
		case nil:
			n++
		case evring.ErrFull, syscall.EAGAIN: // the reader has to make room
			time.Sleep(10 * time.Microsecond)
		default:
			_ = reader.Process.Kill()
			_ = reader.Wait()
			return 0, err
		}
	}
	err = reader.Wait()
	return time.Since(began), err
}

// read takes a number of events from the memory on descriptor 3, woken by the eventfd on descriptor 4.
func read(way, events string) error {
	want, err := strconv.ParseUint(events, 10, 64)
	if err != nil {
		return err
	}
	ring, err := evring.Open(3, 4)
	if err != nil {
		return err
	}
	defer ring.Close()
	poll, err := syscall.EpollCreate1(0)
	if err == nil {
		err = syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, ring.Eventfd(), &syscall.EpollEvent{Events: syscall.EPOLLIN})
	}
	if err != nil {
		return err
	}
	defer syscall.Close(poll)
	for got := uint64(0); got < want; {
		if way == "eventfd" {
			n, err := counted(ring.Eventfd(), poll)
			if err != nil {
				return err
			}
			got += n
			continue
		}
		var wrong error
		n, err := ring.Drain(0, func(event []byte) {
			if number := binary.NativeEndian.Uint64(event); number != got {
				wrong = fmt.Errorf("event %d came as number %d", number, got)
			}
			got++
		})
		if err != nil || wrong != nil {
			return cmp.Or(err, wrong)
		}
		if n == 0 {
			ring.Awake(ring.Sleep() && wait(poll))
		}
	}
	return nil
}

// counted waits for an eventfd, and returns how often it was written.
func counted(fd, poll int) (uint64, error) {
	var b [8]byte
	for {
		switch _, err := syscall.Read(fd, b[:]); err {
		case nil:
			return binary.NativeEndian.Uint64(b[:]), nil
		case syscall.EAGAIN:
			wait(poll)
		default:
			return 0, err
		}
	}
}

// wait waits until the eventfd is written, and reports whether it was.
func wait(poll int) bool {
	var events [1]syscall.EpollEvent
	n, _ := syscall.EpollWait(poll, events[:], 10_000) // an interruption is not an event
	return n > 0
}
