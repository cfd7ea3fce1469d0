package page

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"slices"
	"testing"
)

// Differences of screenshots are judged by the mean colour of blocks of so many pixels, so that the edges of letters may
// differ, as they do between versions of a browser. A block differs if a part of its colour does by more than
// shade of 255, and tolerated is the share of blocks that may.
const (
	block     = 10
	shade     = 20
	tolerated = 0.004
)

// difference returns an image with the blocks that differ in red, and their share.
func difference(a, b image.Image) (*image.RGBA, float64) {
	size := a.Bounds().Union(b.Bounds())
	out := image.NewRGBA(size)
	count, all := 0, 0
	for y := 0; y < size.Dy(); y += block {
		for x := 0; x < size.Dx(); x += block {
			all++
			r := image.Rect(x, y, x+block, y+block).Intersect(size)
			m, n := mean3(a, r), mean3(b, r)
			differs := !r.In(a.Bounds()) || !r.In(b.Bounds())
			for i := range m {
				differs = differs || math.Abs(m[i]-n[i]) > shade
			}
			shown := color.RGBA{uint8(n[0]), uint8(n[1]), uint8(n[2]), 255}
			if differs {
				count++
				shown = color.RGBA{255, 0, 0, 255}
			}
			fill(out, r, shown)
		}
	}
	return out, float64(count) / float64(all)
}

// mean3 returns the mean colour of a rectangle within an image.
func mean3(m image.Image, r image.Rectangle) (mean [3]float64) {
	r = r.Intersect(m.Bounds())
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			red, green, blue, _ := m.At(x, y).RGBA()
			for i, v := range []uint32{red, green, blue} {
				mean[i] += float64(v>>8) / float64(r.Dx()*r.Dy())
			}
		}
	}
	return mean
}

func fill(m *image.RGBA, r image.Rectangle, c color.RGBA) {
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			m.SetRGBA(x, y, c)
		}
	}
}

// shrunk returns the upper left part of an image with its 256 most frequent colours, or those next to them: a
// fourth of the bytes.
func shrunk(t *testing.T, full []byte, width, height int) []byte {
	t.Helper()
	m := decoded(t, full)
	r := m.Bounds().Intersect(image.Rect(0, 0, width, height))
	counts := map[color.RGBA]int{}
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			counts[at(m, x, y)]++
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(number(a), number(b)))
	})
	var colours color.Palette
	for _, c := range order[:min(len(order), 256)] {
		colours = append(colours, c)
	}
	out, known := image.NewPaletted(r, colours), map[color.RGBA]uint8{}
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c := at(m, x, y)
			i, ok := known[c]
			if !ok {
				i = uint8(colours.Index(c))
				known[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	return encoded(t, out)
}

func at(m image.Image, x, y int) color.RGBA { return color.RGBAModel.Convert(m.At(x, y)).(color.RGBA) }

func number(c color.RGBA) uint32 { return uint32(c.R)<<16 | uint32(c.G)<<8 | uint32(c.B) }

func decoded(t *testing.T, b []byte) image.Image {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(b))
	must(t, err)
	return m
}

func encoded(t *testing.T, m image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestCompression}
	must(t, e.Encode(&out, m))
	return out.Bytes()
}
