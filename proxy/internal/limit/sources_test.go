package limit_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/source"
)

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
	s.Set(3, 0, 0)
	admit("10.0.0.1", nil)
	admit("10.0.0.1", limit.ErrSourceConnections)
	if e, err := s.Admit(source.Source{}, 1); err != source.ErrUnknown || e != limit.Entry(0) {
		t.Errorf("a client without a source: %v, %v", e, err)
	}
	s.Leave(limit.Entry(0))
	if st := s.Stats(); st.Sources != 4 || st.Connections != 7 || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSourcesOfUnix: clients of unix sockets are counted by users, whatever their group and
// process are, and none is the same source as a client of TCP.
func TestSourcesOfUnix(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 2, PrefixV6: 128})
	admit := func(of source.Source, want error) (e limit.Entry) {
		t.Helper()
		e, err := s.Admit(of, 1)
		if err != want {
			t.Fatalf("%v: %v, want %v", of, err, want)
		}
		return e
	}
	user := func(uid uint32, pid int32) source.Source {
		return source.Unix(source.Credentials{UID: uid, GID: uint32(pid), PID: pid})
	}
	first := admit(user(7, 1), nil)
	admit(user(7, 2), nil)
	admit(user(7, 3), limit.ErrSourceConnections)
	admit(user(0, 4), nil)
	for range 2 {
		admit(at(netip.MustParseAddr("::7")), nil)
		admit(at(netip.MustParseAddr("0.0.0.7")), nil)
	}
	s.Leave(first)
	admit(user(7, 5), nil)
	admit(user(7, 6), limit.ErrSourceConnections)
	if st := s.Stats(); st.Sources != 4 || st.Connections != 7 {
		t.Errorf("%+v", st)
	}
}

func TestSourcesRate(t *testing.T) {
	s := sources(t, limit.SourcesConfig{PerSecond: 10, Burst: 2})
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
	now += 100e6
	take(a, nil)
	take(a, limit.ErrSourceRate)
	s.Set(0, 0, 0)
	take(a, nil)
}

func TestSourcesConfig(t *testing.T) {
	for _, cfg := range []limit.SourcesConfig{{PrefixV4: 33}, {PrefixV4: -1}, {PrefixV6: 129}, {Entries: -1}, {Entries: 1 << 30}} {
		if _, err := limit.NewSources(cfg); !errors.Is(err, limit.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestSourcesModel holds a table that is large enough against a map.
func TestSourcesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 3
		s, err := limit.NewSources(limit.SourcesConfig{Connections: most, Entries: 1000})
		if err != nil {
			t.Fatal(err)
		}
		type held struct {
			entry limit.Entry
			addr  source.Source
		}
		live, all := map[source.Source]int{}, []held(nil)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "leave") {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
				s.Leave(all[i].entry)
				live[all[i].addr]--
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
				continue
			}
			addr := any4(rapid.Uint32Range(0, 50).Draw(t, "addr"))
			e, err := s.Admit(addr, 1)
			if want := live[addr] < most; want != (err == nil) {
				t.Fatalf("%v with %d connections: %v", addr, live[addr], err)
			}
			if err == nil {
				live[addr]++
				all = append(all, held{e, addr})
			}
		}
		if n := s.Stats().Connections; n != len(all) {
			t.Fatalf("%d connections, want %d", n, len(all))
		}
	})
}

// TestSourcesFlood: a million sources take no more memory than the table may, those with
// connections are not forgotten meanwhile, nor is one that keeps trying.
func TestSourcesFlood(t *testing.T) {
	const entries, flood = 10_000, 1_000_000 / slower
	s := sources(t, limit.SourcesConfig{Connections: 1, PerSecond: 1, Burst: 1, Entries: entries})
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
	if st.Sources > entries*8/5 || st.Sources < entries || st.Connections != len(stays) || st.Forgotten < flood-2*entries {
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
	if refused == 0 || len(all) > 64*11 || s.Stats().Refused != int64(refused) {
		t.Fatalf("%d admitted, %d refused, %+v", len(all), refused, s.Stats())
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

func TestSourcesShared(t *testing.T) {
	s := sources(t, limit.SourcesConfig{Connections: 4, PerSecond: 1e6, Entries: 64})
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			var held [8]limit.Entry
			for i := range int64(20_000) {
				e, err := s.Admit(any4(r.Uint32N(200)), i*1e6)
				if err == nil {
					s.Leave(held[i%8])
					held[i%8] = e
				}
			}
			for _, e := range held {
				s.Leave(e)
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.Connections != 0 {
		t.Errorf("%+v", st)
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

func BenchmarkSources(b *testing.B) {
	for name, many := range map[string]uint32{"one": 1, "1,000": 1000, "all": 1 << 31} {
		b.Run(name, func(b *testing.B) {
			s := sources(b, limit.SourcesConfig{Connections: 1 << 20, PerSecond: 1e9})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(rand.Uint64(), 1))
				for now := int64(1); pb.Next(); now += 1000 {
					e, _ := s.Admit(any4(r.Uint32N(many)), now)
					s.Leave(e)
				}
			})
		})
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
