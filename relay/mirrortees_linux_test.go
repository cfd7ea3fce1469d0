package relay_test

import (
	"io"
	"testing"
	"time"
)

// TestMirrorCountsTees: the figures of a mirror say which of its bytes came by tee(2), also of those that waited in one
// pipe with bytes that were written.
func TestMirrorCountsTees(t *testing.T) {
	t.Parallel()

	m := newMirrored(t, newRelay(t, nil), ofLoop(), tcp, time.Minute)
	atB, atS, all := make([]byte, 64<<10), collect(m.S), 0
	for i, n := range []int{100, 200, 64 << 10, 64 << 10, 64 << 10, 1, 1, 1, 1, 1, 1, 300, 48 << 10, 48 << 10, 48 << 10, 5} {
		if i == 9 { // what has come until now waits for it
			m.connect()
		}
		if _, err := m.A.Write(content(uint64(i), n)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(m.B, atB[:n]); err != nil {
			t.Fatal(err)
		}
		all += n
	}
	_, _ = m.A.CloseWrite(), m.B.CloseWrite()
	if got := <-atS; len(got) != all {
		t.Fatalf("the shadow has got %d bytes of %d", len(got), all)
	}
	_ = m.S.CloseWrite()
	res, _ := m.wait()
	if got := m.mirrorEnd(); got.Teed != res.AToB.Spliced || got.Copied != res.AToB.Copied || got.Teed == 0 || got.Copied == 0 {
		t.Errorf("the mirror says %+v, the session %+v", got, res.AToB)
	}
}
