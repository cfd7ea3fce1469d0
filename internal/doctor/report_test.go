//go:build linux

package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"syscall"
	"testing"
)

var sample = newReport("on a machine", []Check{
	{Name: "splice", State: OK, Found: "16 KiB moved", Cost: "not shown", Mend: []string{"nor this"}, Figures: struct{}{}},
	{
		Name: "pipe-quota", State: Degraded, Found: "64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to go on in the next line",
		Cost: "copying", Mend: []string{"sysctl -w fs.pipe-user-pages-soft=65536", "docker run"},
		Figures: struct {
			Whole   int    `json:"whole_pipes"`
			Unknown number `json:"unknown,omitzero"`
			Hard    number `json:"hard,omitzero"`
		}{Whole: 64, Hard: known(0)},
	},
	{Name: "numa", State: Unknown, Found: "unreadable", Mend: []string{}},
	{Name: "bpf", State: Unused, Found: "refused", Mend: []string{}},
})

func TestText(t *testing.T) {
	const want = `ok        splice      16 KiB moved
degraded  pipe-quota  64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to
                      go on in the next line
                      cost  copying
                      mend  sysctl -w fs.pipe-user-pages-soft=65536
                      or    docker run
unknown   numa        unreadable
unused    bpf         refused

Penstock can run here. 1 ok, 1 degraded, 0 missing, 1 unknown, 1 not there and not used.
This process runs on a machine.
`
	var got bytes.Buffer
	if err := sample.WriteText(&got); err != nil || got.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got.String(), want)
	}
}

func TestJSON(t *testing.T) {
	const want = `{"checks":[` +
		`{"name":"splice","state":"ok","found":"16 KiB moved","cost":"not shown","mend":["nor this"],"figures":{}},` +
		`{"name":"pipe-quota","state":"degraded","found":"64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to go on in the next line",` +
		`"cost":"copying","mend":["sysctl -w fs.pipe-user-pages-soft=65536","docker run"],"figures":{"whole_pipes":64,"hard":0}},` +
		`{"name":"numa","state":"unknown","found":"unreadable","cost":"","mend":[],"figures":null},` +
		`{"name":"bpf","state":"unused","found":"refused","cost":"","mend":[],"figures":null}],"place":"on a machine","able":true}`
	got, err := json.Marshal(sample)
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

func TestUnableIfAnyCheckSaysSo(t *testing.T) {
	r := newReport("", []Check{{State: OK}, {State: Missing, unable: true}, {State: Missing}})
	if r.Able {
		t.Error("able")
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !bytes.Contains(text.Bytes(), []byte("Penstock cannot run here.")) {
		t.Errorf("%v, %s", err, text.String())
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{exact(0), "0"},
		{exact(999), "999"},
		{exact(1000), "1,000"},
		{exact(-1234567), "-1,234,567"},
		{number{}.String(), "unknown"},
		{known(65536).String(), "65,536"},
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

// TestUnknownIsLeftOut: what could not be tried is neither true nor false.
func TestUnknownIsLeftOut(t *testing.T) {
	for want, err := range map[string]error{
		`{"works":true}`:  nil,
		`{"works":false}`: answered("setsockopt SO_X", syscall.ENOPROTOOPT),
		`{}`:              os.NewSyscallError("connect", syscall.ENETUNREACH),
	} {
		if got, jsonErr := json.Marshal(option{Works: works(err)}); jsonErr != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", err, got, jsonErr, want)
		}
	}
}
