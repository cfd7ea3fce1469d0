package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// svg is a picture that is being drawn: elements at absolute places. Text is escaped only here.
type svg struct{ body bytes.Buffer }

// The colors and fonts of the picture.
const (
	inkColor    = "#1f2933"
	quietColor  = "#66727f"
	gridColor   = "#e3e7eb"
	whiskColor  = "#39434d"
	ourColor    = "#1b7f79"
	floorColor  = "#b9c1c9"
	otherColor  = "#7b93b5"
	groundColor = "#ffffff"
	fonts       = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
)

// glyph is the approximate width of a character, as a share of the font size.
const glyph = 0.56

// style is the style of a text.
type style struct {
	size   float64
	color  string
	anchor string // start, middle, end
	bold   bool
}

func (s *svg) text(x, y float64, text string, st style) {
	weight := ""
	if st.bold {
		weight = ` font-weight="600"`
	}
	fmt.Fprintf(&s.body, `<text x="%s" y="%s" font-size="%s" fill="%s" text-anchor="%s"%s>`,
		num(x), num(y), num(st.size), st.color, st.anchor, weight)
	_ = xml.EscapeText(&s.body, []byte(text)) // a bytes.Buffer returns no error
	s.body.WriteString("</text>\n")
}

func (s *svg) rect(x, y, width, height float64, color string) {
	fmt.Fprintf(&s.body, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n",
		num(x), num(y), num(max(width, 0)), num(height), color)
}

func (s *svg) line(x1, y1, x2, y2 float64, color string, width float64, dashed bool) {
	dashes := ""
	if dashed {
		dashes = ` stroke-dasharray="4 3"`
	}
	fmt.Fprintf(&s.body, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="%s"%s/>`+"\n",
		num(x1), num(y1), num(x2), num(y2), color, num(width), dashes)
}

// document wraps the elements into a picture of this size.
func (s *svg) document(width, height float64, title string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s" font-family="%[3]s" role="img">`+"\n<title>",
		num(width), num(height), fonts)
	_ = xml.EscapeText(&b, []byte(title))
	fmt.Fprintf(&b, "</title>\n"+`<rect width="%s" height="%s" fill="%s"/>`+"\n", num(width), num(height), groundColor)
	b.Write(s.body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// num writes a length in pixels with one decimal.
func num(x float64) string {
	text := strconv.FormatFloat(x, 'f', 1, 64)
	if n := len(text) - 2; text[n:] == ".0" {
		return text[:n]
	}
	return text
}

// fitting returns about how many characters fit into width pixels.
func fitting(size, width float64) int { return max(int(width/(size*glyph)), 1) }

// clip shortens text to about width pixels.
func clip(text string, size, width float64) string {
	most := fitting(size, width)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
