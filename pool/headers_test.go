package pool_test

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/penstock/penstock/pool"
)

func newHeaders(t testing.TB, n int) *pool.Pool[[][]byte] {
	t.Helper()
	p, err := pool.New(pool.Headers(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func getHeaders(t testing.TB, p *pool.Pool[[][]byte]) [][]byte {
	t.Helper()
	h, err := p.Get()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestHeadersLetPayloadGo puts an array whose headers, within and beyond its
// length, point at payload: while the array is idle the payload is garbage.
func TestHeadersLetPayloadGo(t *testing.T) {
	p := newHeaders(t, 8)
	h := getHeaders(t, p)
	array := unsafe.SliceData(h)
	var ps []weak.Pointer[byte]
	for range cap(h) {
		payload := make([]byte, 4096)
		ps = append(ps, weak.Make(&payload[0]))
		h = append(h, payload)
	}
	p.Put(h[:3])
	h = nil
	for i, w := range ps {
		if !collected(w) {
			t.Errorf("an idle array keeps payload %d of %d alive", i, len(ps))
		}
	}
	h, ok := p.TryGet()
	if !ok || unsafe.SliceData(h) != array {
		t.Fatal("the array itself did not come back")
	}
	for i, buf := range h[:cap(h)] {
		if buf != nil {
			t.Errorf("header %d was not cleared", i)
		}
	}
	p.Put(h)
	runtime.KeepAlive(p)
}

func TestHeadersRefuseMovedArrays(t *testing.T) {
	p := newHeaders(t, 4)
	for name, change := range map[string]func([][]byte) [][]byte{
		"grown":  func(h [][]byte) [][]byte { return append(h[:cap(h)], nil) },
		"sliced": func(h [][]byte) [][]byte { return h[1:4] },
		"lost":   func([][]byte) [][]byte { return nil },
	} {
		before := p.Stats()
		p.Put(change(getHeaders(t, p)))
		after := p.Stats()
		if after.Idle != 0 || after.Closed != before.Closed+1 || after.Live != 0 {
			t.Errorf("%s: %+v", name, after)
		}
	}
	if h := getHeaders(t, newHeaders(t, -1)); cap(h) != 1 {
		t.Errorf("Headers(-1) makes arrays of %d", cap(h))
	}
}
