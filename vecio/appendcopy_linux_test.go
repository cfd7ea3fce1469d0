package vecio_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// TestAppendCopy: a piece that was copied may be changed at once, whatever its length, and arrives between
// those around it.
func TestAppendCopy(t *testing.T) {
	far, near := sockets.TCPPair(t)
	var coalesced bytes.Buffer
	for name, dst := range map[string]io.Writer{"conn": near, "coalesced": &coalesced} {
		t.Run(name, func(t *testing.T) {
			w, err := vecio.New(dst, &vecio.Config{High: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			random := rand.New(rand.NewPCG(1, 2))
			shared, borrowed := make([]byte, 16<<10), bytes.Repeat([]byte("b"), 5000)
			var want []byte
			arrived := make(chan []byte)
			if name == "conn" {
				go func() {
					got, _ := io.ReadAll(far)
					arrived <- got
				}()
			}
			for i := range 400 {
				p := shared[:random.IntN(len(shared))]
				if i%3 == 0 {
					p = shared[:random.IntN(40)]
				}
				for j := range p {
					p[j] = byte(i)
				}
				if err := w.AppendCopy(p); err != nil {
					t.Fatal(err)
				}
				want = append(want, p...)
				clear(p)
				if i%5 == 0 {
					if err := w.Append(borrowed); err != nil {
						t.Fatal(err)
					}
					want = append(want, borrowed...)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			got := coalesced.Bytes()
			if name == "conn" {
				near.CloseWrite()
				got = <-arrived
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes have arrived, %d were sent, or they differ", len(got), len(want))
			}
			if n := w.Stats().Pieces; n != 480 {
				t.Errorf("%d pieces", n)
			}
		})
	}
}

// TestPieces: at any moment the views of what is pending are what the destination gets by the next Flush, and
// as many bytes as Pending says. Looking changes nothing.
func TestPieces(t *testing.T) {
	var out bytes.Buffer
	w, err := vecio.New(&out, &vecio.Config{High: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	random := rand.New(rand.NewPCG(3, 4))
	text := bytes.Repeat([]byte("abcdefgh"), 1000)
	for round := range 200 {
		for range random.IntN(20) {
			p := text[:random.IntN(len(text))]
			if random.IntN(3) > 0 {
				p = p[:len(p)%50]
			}
			add := []func() error{
				func() error { return w.Append(p) },
				func() error { return w.AppendCopy(p) },
				func() error { return w.AppendString(string(p)) },
				func() error { return w.Own(p, vecio.ReleaseFunc(func([]byte) {})) },
			}
			if err := add[random.IntN(len(add))](); err != nil {
				t.Fatal(err)
			}
			if random.IntN(4) > 0 {
				continue
			}
			n := 0
			for p := range w.Pieces() {
				if n += len(p); len(p) == 0 || cap(p) != len(p) {
					t.Fatalf("a view of %d bytes, with room for %d", len(p), cap(p))
				}
			}
			if n != w.Pending() {
				t.Fatalf("%d bytes of %d", n, w.Pending())
			}
			for range w.Pieces() { // a look at the first
				break
			}
		}
		out.Reset()
		want := bytes.Join(slices.Collect(w.Pieces()), nil)
		if err := w.Flush(); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("round %d: %d bytes arrived, %d were seen, %v", round, out.Len(), len(want), err)
		}
	}
	if len(slices.Collect(w.Pieces())) != 0 {
		t.Error("an idle writer has pieces")
	}
}
