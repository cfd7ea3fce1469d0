package vecio_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/vecio"
)

// TestRoom: a writer takes as many bytes as Room returns, and refuses one byte more.
func TestRoom(t *testing.T) {
	w, err := vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EAGAIN }, &vecio.Config{High: 1000})
	must(t, err)
	for _, n := range []int{1, 300, 0, 650} {
		before := w.Room()
		must(t, w.Append(make([]byte, n)))
		if w.Room() != before-n {
			t.Fatalf("room for %d after %d of %d", w.Room(), n, before)
		}
	}
	if err := w.Append(make([]byte, w.Room()+1)); err != vecio.ErrFull {
		t.Fatal(err)
	}
	if n := w.Room(); n != 0 {
		t.Errorf("room for %d after it was full", n)
	}
	_ = w.Close() // reports that bytes were pending
	if n := w.Room(); n != 0 {
		t.Errorf("room for %d after it was closed", n)
	}
}

// TestParsePolicy parses each name, and one that is no policy.
func TestParsePolicy(t *testing.T) {
	for _, p := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
		if got, err := vecio.ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := vecio.ParsePolicy("fast"); err == nil {
		t.Error("fast is a policy")
	}
}
