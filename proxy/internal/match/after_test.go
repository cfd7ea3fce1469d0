package match_test

import (
	"errors"
	"testing"

	"github.com/penstock/penstock/proxy/internal/match"
	"pgregory.net/rapid"
)

// TestFindAfter: the routes that fit a client come one after the other, the first one as Find has it.
func TestFindAfter(t *testing.T) {
	names := rapid.SampledFrom([]string{"a.example", "b.a.example", "c.b.a.example", "example", ".example", "a..example", ""})
	patterns := rapid.SampledFrom([]string{"a.example", "*.a.example", "*.example", "*", "B.A.example"})
	rapid.Check(t, func(t *rapid.T) {
		var routes []match.Route
		for range rapid.IntRange(1, 6).Draw(t, "routes") {
			routes = append(routes, match.Route{
				SNI: rapid.SliceOfN(patterns, 0, 2).Draw(t, "sni"), Port: rapid.SampledFrom([]uint16{0, 0, 1}).Draw(t, "port"),
			})
		}
		table, err := match.New(routes)
		if err != nil {
			t.Fatal(err)
		}
		c := &match.Client{ServerName: names.Draw(t, "name"), Port: 2}
		if i, first := table.FindAfter(c, -1), table.Find(c); i != first {
			t.Fatalf("%d, %d", i, first)
		}
		for after := range routes { // the table of the routes after one finds the same
			rest, err := match.New(routes[after+1:])
			if err != nil {
				t.Fatal(err)
			}
			want := rest.Find(c)
			if want >= 0 {
				want += after + 1
			}
			if got := table.FindAfter(c, after); got != want {
				t.Fatalf("after %d: %d, want %d", after, got, want)
			}
		}
	})
}

// TestHiddenLogin: a client whose user and database cannot be read takes no route behind one that they might decide.
func TestHiddenLogin(t *testing.T) {
	table, err := match.New([]match.Route{
		{SNI: []string{"orders.test"}},
		{SNI: []string{"db.test"}, Databases: []string{"shop"}},
		{ALPN: []string{"postgresql"}},
		{Users: []string{"admin"}},
		{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client match.Client
		after  int
		want   int
		doubt  bool
	}{
		{match.Client{ServerName: "orders.test"}, match.None, 0, false},
		{match.Client{ServerName: "db.test"}, match.None, match.None, true},
		{match.Client{ServerName: "other.test", ALPN: []string{"postgresql"}}, match.None, 2, false},
		{match.Client{ServerName: "db.test", ALPN: []string{"postgresql"}}, 1, 2, false},
		{match.Client{}, match.None, match.None, true},
		{match.Client{}, 3, 4, false},
		{match.Client{}, 4, match.None, false},
	} {
		got, err := table.FindHidden(&c.client, c.after)
		if got != c.want || errors.Is(err, match.ErrUndecided) != c.doubt || (err != nil) != c.doubt {
			t.Errorf("%+v after %d: %d, %v, want %d", c.client, c.after, got, err, c.want)
		}
	}
}
