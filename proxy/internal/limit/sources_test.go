package limit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/source"
)

// at is a client of TCP.
func at(addr netip.Addr) source.Source { return source.TCP(netip.AddrPortFrom(addr, 1)) }

// any4 and any6 are clients of TCP by number.
func any4(n uint32) source.Source {
	return at(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}))
}

func any6(r *rand.Rand) source.Source {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0] = 0x20 // not a mapped one
	return at(netip.AddrFrom16(b))
}

func sources(t testing.TB, cfg limit.SourcesConfig) *limit.Sources {
	t.Helper()
	s, err := limit.NewSources(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSourcesAdopt: connections that are there already count beyond the limits, the table's too, and until they leave.
func TestSourcesAdopt(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 1, PerSecond: 1, PrefixV4: 24, Entries: 1})
	one, other := at(netip.MustParseAddr("10.0.0.1")), at(netip.MustParseAddr("10.0.0.2"))
	held := []limit.Entry{s.Adopt(one, 1), s.Adopt(other, 1)}
	if _, err := s.Admit(one, 1); err != limit.ErrSourceConnections {
		t.Errorf("beside adopted ones: %v", err)
	}
	for i := range 5000 { // all shards have more than they may
		held = append(held, s.Adopt(at(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 1})), 1))
	}
	if st := s.Stats(); st.Connections != len(held) || st.Sources != len(held)-1 || s.Adopt(source.Source{}, 1) != 0 {
		t.Errorf("%+v", st)
	}
	if err := s.SetPrefix(8, 64, 1); err != nil {
		t.Fatal(err)
	}
	for _, e := range held {
		s.Leave(e)
	}
	if st := s.Stats(); st.Connections != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := s.Admit(one, 2); err != nil {
		t.Errorf("after them: %v", err)
	}
}

func TestSourcesConnections(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 2, PrefixV4: 24})
	admit := func(addr string, want error) limit.Entry {
		t.Helper()
		e, err := s.Admit(at(netip.MustParseAddr(addr)), 1)
		if err != want {
			t.Fatalf("%s: %v, want %v", addr, err, want)
		}
		return e
	}
	first := admit("10.0.0.1", nil)
	admit("10.0.0.2", nil)
	admit("10.0.0.3", limit.ErrSourceConnections)
	admit("::ffff:10.0.0.4", limit.ErrSourceConnections)
	admit("10.0.1.1", nil)
	six := admit("2001:db8:0:1::1", nil)
	admit("2001:db8:0:1:ffff::", nil)
	admit("2001:db8:0:1::2%eth0", limit.ErrSourceConnections)
	admit("2001:db8:0:2::1", nil)
	s.Leave(first)
	s.Leave(six)
	admit("10.0.0.9", nil)
	admit("2001:db8:0:1::3", nil)
	s.Set(3, 0)
	admit("10.0.0.1", nil)
	admit("10.0.0.1", limit.ErrSourceConnections)
	if e, err := s.Admit(source.Source{}, 1); err != source.ErrUnknown || e != limit.Entry(0) {
		t.Errorf("a client without a source: %v, %v", e, err)
	}
	s.Leave(limit.Entry(0))
	if st := s.Stats(); st.Sources != 4 || st.Connections != 7 {
		t.Errorf("%+v", st)
	}
}

func TestSourcesRate(t *testing.T) {
	s := sources(t, limit.SourcesConfig{PerSecond: 2})
	a, b := any4(1), any4(2)
	now := int64(1e9)
	take := func(addr source.Source, want error) {
		t.Helper()
		e, err := s.Admit(addr, now)
		if err != want {
			t.Fatalf("%v at %d: %v, want %v", addr, now, err, want)
		}
		s.Leave(e)
	}
	take(a, nil)
	take(a, nil)
	take(a, limit.ErrSourceRate)
	take(b, nil)
	now += 500e6
	take(a, nil)
	take(a, limit.ErrSourceRate)
	s.Set(0, 0)
	take(a, nil)
}

func TestSourcesConfig(t *testing.T) {
	for _, cfg := range []limit.SourcesConfig{{PrefixV4: 33}, {PrefixV4: -1}, {PrefixV6: 129}, {Entries: -1}, {Entries: 1 << 30}} {
		if _, err := limit.NewSources(cfg); !errors.Is(err, limit.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestSourcesFlood: a million sources take no more memory than the table may, those with
// connections are not forgotten meanwhile, nor is one that keeps trying.
func TestSourcesFlood(t *testing.T) {
	const entries = 10_000
	flood := 1_000_000
	if race.Enabled {
		flood /= 10
	}
	s := sources(t, limit.SourcesConfig{Connections: 1, PerSecond: 1, Entries: entries})
	stays := make([]limit.Entry, 1000)
	for i := range stays {
		var err error
		if stays[i], err = s.Admit(any4(uint32(i)), 1); err != nil {
			t.Fatal(err)
		}
	}
	eager := any4(5000)
	e, err := s.Admit(eager, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Leave(e)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range flood {
		e, err := s.Admit(any6(r), int64(2+i))
		if err != nil {
			t.Fatal(err)
		}
		s.Leave(e)
		if i%100 == 0 {
			if _, err := s.Admit(eager, int64(2+i)); err != limit.ErrSourceRate {
				t.Fatalf("a source that keeps trying, after %d others: %v", i, err)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > entries*3*64*2 {
		t.Errorf("so many sources took %d bytes", grown)
	}
	st := s.Stats()
	if st.Sources > entries*8/5 || st.Sources < entries || st.Connections != len(stays) {
		t.Errorf("%+v", st)
	}
	for i := range stays {
		if _, err := s.Admit(any4(uint32(i)), 3e9); err != limit.ErrSourceConnections {
			t.Fatalf("source %d, which has a connection: %v", i, err)
		}
		s.Leave(stays[i])
	}
	if n := s.Stats().Connections; n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// TestSourcesFull: a table that is full of sources with connections refuses others, and
// does not when one has left.
func TestSourcesFull(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Entries: 1})
	var all []limit.Entry
	refused := 0
	for i := range uint32(10_000) {
		switch e, err := s.Admit(any4(i), 1); err {
		case nil:
			all = append(all, e)
		case limit.ErrSources:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if refused == 0 || len(all) > 64*11 {
		t.Fatalf("%d admitted, %d refused", len(all), refused)
	}
	for _, e := range all {
		s.Leave(e)
		s.Leave(e) // a mistake, which costs nothing
	}
	for i := range uint32(10_000) {
		e, err := s.Admit(any4(i), 1)
		if err != nil {
			t.Fatal(err)
		}
		s.Leave(e)
	}
}

// TestSourcesEnough: as many entries as connections are enough for all of them, each from a
// source of its own.
func TestSourcesEnough(t *testing.T) {
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		s := sources(t, limit.SourcesConfig{Connections: 1, Entries: n})
		refused := 0
		for i := range n {
			if _, err := s.Admit(any4(uint32(i)), 1); err != nil {
				refused++
			}
		}
		if refused > 0 {
			t.Errorf("%d of %d sources were refused", refused, n)
		}
	}
}

func TestSourcesAllocate(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 4, PerSecond: 1e9, Entries: 100})
	r := rand.New(rand.NewPCG(1, 1))
	round := func() {
		e, err := s.Admit(any4(r.Uint32()), 1)
		if err != nil {
			t.Fatal(err)
		}
		s.Leave(e)
	}
	for range 10_000 {
		round()
	}
	if n := testing.AllocsPerRun(10_000, round); n != 0 {
		t.Errorf("%v allocations for a connection", n)
	}
}

// TestMemoryOfConnections: each connection takes little more than its holding.
func TestMemoryOfConnections(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 1e6})
	const n = 20_000
	admit := func(n int) {
		for range n {
			_, err := s.Admit(any4(1), 1)
			must(t, err)
		}
	}
	admit(1)
	before := heap.InUse()
	admit(n)
	if each := (heap.InUse() - before) / n; each > 21 {
		t.Errorf("%d bytes for each connection, want at most 21", each)
	}
}

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
	s := sources(t, limit.SourcesConfig{PerSecond: 5})
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
	if n := newcomers(s, c, now+8e8); n != 4 {
		t.Errorf("%d are admitted after 0.8 s, want 4", n)
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
