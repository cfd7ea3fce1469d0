package limit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/source"
)

// A census counts sources by prefixes, as a table of them has to.
type census struct{ v4, v6 int }

// of names the source that a client is of.
func (c census) of(s source.Source) string {
	if peer, ok := s.Credentials(); ok {
		return fmt.Sprint("user ", peer.UID)
	}
	bits := c.v6
	if s.AddrPort().Addr().Is4() {
		bits = c.v4
	}
	return netip.PrefixFrom(s.AddrPort().Addr(), bits).Masked().String()
}

// anySource draws one of few, near each other.
func anySource(t *rapid.T) source.Source {
	n := rapid.Uint32Range(0, 7).Draw(t, "host")
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return source.Unix(source.Credentials{UID: n, PID: rapid.Int32().Draw(t, "pid")})
	case 1:
		return at(netip.AddrFrom4([4]byte{10, byte(n >> 2), byte(n >> 1 & 1), byte(n & 1)}))
	default:
		return at(netip.AddrFrom16([16]byte{0x20, 0x01, 7: byte(n >> 2), 8: byte(n >> 1 & 1), 15: byte(n & 1)}))
	}
}

// TestPrefixChangesModel: whatever the prefixes were when connections came, each is counted
// by those that are in force, to the very one.
func TestPrefixChangesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 3
		in := census{32, 64}
		s, err := limit.NewSources(limit.SourcesConfig{Connections: most, PrefixV4: in.v4, PrefixV6: in.v6, Entries: 100})
		if err != nil {
			t.Fatal(err)
		}
		type held struct {
			entry limit.Entry
			from  source.Source
		}
		var all []held
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				from, n := anySource(t), 0
				for _, h := range all {
					if in.of(h.from) == in.of(from) {
						n++
					}
				}
				e, err := s.Admit(from, 1)
				if want := n < most; want != (err == nil) || !want && !errors.Is(err, limit.ErrSourceConnections) {
					t.Fatalf("%v with %d connections of %s: %v", from, n, in.of(from), err)
				}
				if err == nil {
					all = append(all, held{e, from})
				}
			},
			"leave": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("there is no connection")
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
				s.Leave(all[i].entry)
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
			},
			"change": func(t *rapid.T) {
				in.v4 = rapid.SampledFrom([]int{1, 8, 16, 24, 31, 32}).Draw(t, "of IPv4")
				in.v6 = rapid.SampledFrom([]int{1, 32, 56, 64, 65, 72, 128}).Draw(t, "of IPv6")
				if err := s.SetPrefix(in.v4, in.v6, 1); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				if n := s.Stats().Connections; n != len(all) {
					t.Fatalf("%d connections, want %d", n, len(all))
				}
			},
		})
	})
}

// TestPrefixChangesShared: loops admit and take back connections while prefixes change, and
// in the end nothing is left, nor is anything counted twice.
func TestPrefixChangesShared(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 100, PerSecond: 1e9, Entries: 1000})
	over := make(chan struct{})
	var changes, loops sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			if err := s.SetPrefix(8+i%25, 1+i%128, int64(i)); err != nil {
				t.Error(err)
			}
		}
	})
	for g := range uint64(4) {
		loops.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			var held [32]limit.Entry
			for i := range int64(5_000) {
				if e, err := s.Admit(any4(r.Uint32N(200)), i); err == nil {
					s.Leave(held[i%32])
					held[i%32] = e
				}
			}
			for _, e := range held {
				s.Leave(e)
			}
		})
	}
	loops.Wait()
	close(over)
	changes.Wait()
	if n := s.Stats().Connections; n != 0 {
		t.Errorf("%d connections are left", n)
	}
	must(t, s.SetPrefix(32, 64, 0))
	for i := range uint32(200) {
		for n := range 100 {
			if _, err := s.Admit(any4(i), 1e18); err != nil {
				t.Fatalf("connection %d of source %d: %v", n, i, err)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrefixChangesRates: when sources become parts of a larger one, the rates that they have
// used count for it. When a source is divided, each part with a connection may have used all of
// its rate.
func TestPrefixChangesRates(t *testing.T) {
	const now = int64(1e9)
	a, b, c := at(netip.MustParseAddr("10.0.0.1")), at(netip.MustParseAddr("10.0.0.2")), at(netip.MustParseAddr("10.0.0.3"))
	newcomers := func(s *limit.Sources, of source.Source, at int64) (n int) {
		for ; n < 100; n++ {
			if _, err := s.Admit(of, at); err != nil {
				break
			}
		}
		return n
	}
	s := sources(t, limit.SourcesConfig{PerSecond: 1, Burst: 5})
	e, err := s.Admit(a, now)
	must(t, err)
	s.Leave(e)
	for range 2 {
		_, err = s.Admit(b, now)
		must(t, err)
	}
	must(t, s.SetPrefix(24, 64, now))
	if n := newcomers(s, c, now); n != 2 {
		t.Errorf("%d are admitted of a prefix that has used 3 of 5", n)
	}
	must(t, s.SetPrefix(32, 64, now))
	if n := newcomers(s, a, now); n != 5 {
		t.Errorf("%d are admitted of an address that has no connection, want 5", n)
	}
	if n := newcomers(s, c, now); n != 0 {
		t.Errorf("%d are admitted of an address that may have used all", n)
	}
	must(t, s.SetPrefix(24, 64, now)) // together they have used 15, of which 5 is the most
	if n := newcomers(s, c, now+4e9); n != 4 {
		t.Errorf("%d are admitted after 4 s, want 4", n)
	}
}

func TestPrefixChangesAreHeldToTheirRange(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 1})
	_, err := s.Admit(any4(1), 1)
	must(t, err)
	for _, bits := range [][2]int{{33, 64}, {-1, 64}, {32, 129}, {32, -1}} {
		if err := s.SetPrefix(bits[0], bits[1], 1); !errors.Is(err, limit.ErrConfig) {
			t.Errorf("%v: %v", bits, err)
		}
	}
	if _, err := s.Admit(any4(1), 1); err != limit.ErrSourceConnections {
		t.Errorf("afterwards: %v", err)
	}
}

// BenchmarkSetPrefix measures for how long no client is admitted.
func BenchmarkSetPrefix(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := sources(b, limit.SourcesConfig{Connections: n, Entries: n})
			for i := range n {
				_, err := s.Admit(any4(uint32(i)), 1)
				must(b, err)
			}
			for i := 0; b.Loop(); i++ {
				must(b, s.SetPrefix(32-i%2*8, 64, 1))
			}
		})
	}
}
