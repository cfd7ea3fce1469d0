package doctor

import (
	"bytes"
	"encoding/json"
	"testing"
)

var sample = newReport("on a machine", []Check{
	{Name: "splice", State: OK, Found: "it works", Cost: "not shown", Mend: []string{"nor this"}},
	{
		Name: "pipes", State: Degraded, Found: "64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to go on in the next line",
		Cost: "copying", Mend: []string{"sysctl -w fs.pipe-user-pages-soft=65536", "docker run"},
	},
	{Name: "ports", State: Unknown, Found: "unreadable"},
	{Name: "lane", State: Unused, Found: "refused"},
})

func TestText(t *testing.T) {
	t.Parallel()
	const want = `ok        splice  it works
degraded  pipes   64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to go on
                  in the next line
                  cost  copying
                  mend  sysctl -w fs.pipe-user-pages-soft=65536
                  or    docker run
unknown   ports   unreadable
unused    lane    refused

Penstock can run here. 1 ok, 1 degraded, 0 missing, 1 unknown, 1 not there and not used.
This process runs on a machine.
`
	var got bytes.Buffer
	if err := sample.WriteText(&got); err != nil || got.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got.String(), want)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	const want = `{"checks":[` +
		`{"name":"splice","state":"ok","found":"it works","cost":"not shown","mend":["nor this"]},` +
		`{"name":"ports","state":"unknown","found":"unreadable","cost":"","mend":[]}],"place":"on a machine","able":true}`
	got, err := json.Marshal(newReport("on a machine", []Check{sample.Checks[0], sample.Checks[2]}))
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

func TestUnableIfAnyCheckSaysSo(t *testing.T) {
	t.Parallel()
	r := newReport("", []Check{{State: OK}, {State: Missing, unable: true}, {State: Missing}})
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || r.Able || !bytes.Contains(text.Bytes(), []byte("Penstock cannot run here.")) {
		t.Errorf("able %v, %v, %s", r.Able, err, text.String())
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{exact(0), "0"},
		{exact(999), "999"},
		{exact(1000), "1,000"},
		{exact(1234567), "1,234,567"},
		{exact(unknown), "unknown"},
		{size(0), "0 B"},
		{size(1023), "1023 B"},
		{size(64 << 10), "64 KiB"},
		{size(1536), "1.5 KiB"},
		{size(6 << 20), "6 MiB"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
