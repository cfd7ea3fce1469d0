// Package flamegraph writes CPU profiles as folded stacks, and as flame graphs in SVG: each frame
// is a rectangle as wide as its share of the samples, above the frame that called it.
package flamegraph

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Stacks are counts of samples by their stack: the frames from the outermost one, joined by ";".
type Stacks map[string]int64

// Parse reads a CPU profile in the format of pprof. A sample counts the profile's last value: CPU
// time in nanoseconds in Go's profiles. Inlined frames are frames of their own.
func Parse(data []byte) (Stacks, error) {
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	stacks := make(Stacks)
	for _, s := range p.Sample {
		var frames []string
		for _, l := range slices.Backward(s.Location) {
			for _, line := range slices.Backward(l.Line) {
				frames = append(frames, frameName(line))
			}
			if len(l.Line) == 0 {
				frames = append(frames, fmt.Sprintf("%#x", l.Address))
			}
		}
		if len(s.Value) > 0 {
			stacks[strings.Join(frames, ";")] += s.Value[len(s.Value)-1]
		}
	}
	return stacks, nil
}

// frameName returns the name of a frame, which separates no stacks.
func frameName(l profile.Line) string {
	if l.Function == nil || l.Function.Name == "" {
		return "unknown"
	}
	return strings.NewReplacer(";", ":", "\n", " ").Replace(l.Function.Name)
}

// WriteFolded writes a line for each stack: its frames and its count, in the order of the stacks.
func (s Stacks) WriteFolded(w io.Writer) error {
	var out bytes.Buffer
	for _, stack := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&out, "%s %d\n", stack, s[stack])
	}
	_, err := w.Write(out.Bytes())
	return err
}

// A frame is a rectangle: a function, called by the one below.
type frame struct {
	name  string
	value int64
	calls map[string]*frame
}

// tree joins the stacks that begin alike.
func (s Stacks) tree() *frame {
	root := &frame{name: "all", calls: make(map[string]*frame)}
	for stack, n := range s {
		at := root
		at.value += n
		for name := range strings.SplitSeq(stack, ";") {
			next := at.calls[name]
			if next == nil {
				next = &frame{name: name, calls: make(map[string]*frame)}
				at.calls[name] = next
			}
			next.value += n
			at = next
		}
	}
	return root
}

// depth returns the number of rows that a frame needs; those of frames too narrow to draw are none.
func (f *frame) depth(least int64) int {
	deepest := 0
	for _, c := range f.calls {
		if c.value >= least {
			deepest = max(deepest, c.depth(least))
		}
	}
	return 1 + deepest
}

// Measures of the picture, in pixels. A frame is drawn if it is at least minWidth wide, and named
// if the name's beginning fits.
const (
	width, row, margin, head = 1200, 17, 10, 40
	minWidth                 = 0.3
	charWidth                = 7.0
)

// WriteSVG writes a flame graph. It is a file by itself, has no script, and shows the whole name
// and the share of a frame where the pointer rests. unit returns a value as a text.
func (s Stacks) WriteSVG(w io.Writer, title string, unit func(int64) string) error {
	root := s.tree()
	p := picture{unit: unit, all: max(root.value, 1)}
	least := int64(minWidth / (width - 2*margin) * float64(p.all))
	p.height = head + row*root.depth(least) + margin
	fmt.Fprintf(&p.out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" font-family=\"monospace\" font-size=\"12\">\n", width, p.height)
	fmt.Fprintf(&p.out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fffdf5\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n", margin, escape(title))
	p.draw(root, margin, 0)
	p.out.WriteString("</svg>\n")
	_, err := w.Write(p.out.Bytes())
	return err
}

// A picture is an SVG that is being written.
type picture struct {
	out    bytes.Buffer
	unit   func(int64) string
	all    int64
	height int
}

// draw draws a frame at x, and what it calls above it, the widest first.
func (p *picture) draw(f *frame, x float64, level int) {
	wide := float64(f.value) / float64(p.all) * (width - 2*margin)
	if wide < minWidth {
		return
	}
	y := p.height - margin - row*(level+1)
	share := 100 * float64(f.value) / float64(p.all)
	fmt.Fprintf(&p.out, "<g><title>%s: %s, %.2f %%</title><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\" stroke=\"#fffdf5\"/>",
		escape(f.name), escape(p.unit(f.value)), share, x, y, wide, row, color(f.name))
	if name := fit(f.name, wide); name != "" {
		fmt.Fprintf(&p.out, "<text x=\"%.1f\" y=\"%d\">%s</text>", x+3, y+row-4, escape(name))
	}
	p.out.WriteString("</g>\n")
	calls := slices.SortedFunc(maps.Values(f.calls), func(a, b *frame) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.name, b.name))
	})
	for _, c := range calls {
		p.draw(c, x, level+1)
		x += float64(c.value) / float64(p.all) * (width - 2*margin)
	}
}

// fit returns the part of a name that fits, "" if that is next to nothing.
func fit(name string, wide float64) string {
	room := int((wide - 6) / charWidth)
	text := []rune(name)
	switch {
	case len(text) <= room:
		return name
	case room < 4:
		return ""
	}
	return string(text[:room-2]) + ".."
}

// color returns a warm color that depends on the name's package, and a cold one for the kernel.
func color(name string) string {
	hue := 0
	pkg, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
	for _, b := range []byte(pkg) {
		hue = (hue*31 + int(b)) % 50
	}
	if strings.HasSuffix(name, "_[k]") {
		hue += 190
	}
	return fmt.Sprintf("hsl(%d,80%%,70%%)", hue)
}

// escape returns a text for XML: names may have any character.
func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes all
	return b.String()
}
