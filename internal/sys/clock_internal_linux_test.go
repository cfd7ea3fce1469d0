package sys

import (
	"syscall"
	"testing"
)

func TestGetrusage(t *testing.T) {
	before, err := Getrusage(RUSAGE_SELF)
	if err != nil {
		t.Fatal(err)
	}
	// One that waits for the other is a context switch each time, as the pipe
	// is empty.
	r, w, err := Pipe2(O_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(r)
	go func() {
		defer Close(w)
		for range 100 {
			_, _ = Write(w, []byte{1})
		}
	}()
	for n := 1; n > 0; {
		if n, err = Read(r, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		after, err := Getrusage(RUSAGE_SELF)
		if err != nil {
			t.Fatal(err)
		}
		if after.Utime+after.Stime > before.Utime+before.Stime && after.Nvcsw+after.Nivcsw > before.Nvcsw+before.Nivcsw {
			return
		}
	}
}

func TestGetrusageOfNobody(t *testing.T) {
	if _, err := Getrusage(12345); err != syscall.EINVAL {
		t.Errorf("got %v, want EINVAL", err)
	}
}

func TestRlimitNProc(t *testing.T) {
	soft, hard, err := RlimitNProc()
	if err != nil || soft > hard || soft == 0 {
		t.Fatalf("%d, %d, %v", soft, hard, err)
	}
	if err := SetRlimitNProc(soft, hard); err != nil {
		t.Errorf("to what they are: %v", err)
	}
	if err := SetRlimitNProc(1, 0); err != syscall.EINVAL {
		t.Errorf("soft above hard: %v, want EINVAL", err)
	}
}
