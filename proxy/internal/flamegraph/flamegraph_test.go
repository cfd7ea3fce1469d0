package flamegraph

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
)

func unit(n int64) string { return strconv.FormatInt(n, 10) }

// TestSVG: a picture is well-formed whatever the names, has no script, and frames are as wide as
// their shares.
func TestSVG(t *testing.T) {
	s := Stacks{"main;a<b>&\"c\";\x00\xff]]>": 75, "main;other": 25}
	var out bytes.Buffer
	if err := s.WriteSVG(&out, "<script>", unit); err != nil {
		t.Fatal(err)
	}
	elements := 0
	for d := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; elements++ {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "script" {
			t.Error("a script")
		}
	}
	for _, want := range []string{"a&lt;b&gt;&amp;", "75, 75.00 %", `width="295.0"`, "other: 25, 25.00 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	if elements < 10 {
		t.Errorf("%d elements", elements)
	}
	if err := (Stacks{}).WriteSVG(io.Discard, "", unit); err != nil {
		t.Error(err)
	}
}

func TestFolded(t *testing.T) {
	var out strings.Builder
	if err := (Stacks{"b;c": 2, "a": 1}).WriteFolded(&out); err != nil || out.String() != "a 1\nb;c 2\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestParse: the function that used the time is in the profile of this process.
func TestParse(t *testing.T) {
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		t.Skip(err)
	}
	sum := 0
	for range 8000 { // some 300 ms of a CPU, however long they take
		sum += spin()
	}
	pprof.StopCPUProfile()
	t.Log("sum", sum)
	s, err := Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := s.WriteFolded(&text); err != nil || !strings.Contains(text.String(), "flamegraph.spin") {
		t.Errorf("%v, %s", err, text.String())
	}
	if _, err := Parse([]byte("no profile")); err == nil {
		t.Error("a text is a profile")
	}
}

//go:noinline
func spin() (n int) {
	for i := range 100000 {
		n += i * i
	}
	return n
}
