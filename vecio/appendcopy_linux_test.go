package vecio_test

import (
	"bytes"
	"io"
	"math/rand/v2"
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
