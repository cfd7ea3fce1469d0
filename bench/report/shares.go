package report

import (
	"fmt"
	"io"
)

// Part is a part of the work for a message or a stream.
type Part uint8

const (
	// Peers is the client and the server, with their own system calls.
	Peers Part = iota
	// Delivery is packets on their way up to a socket, of whichever process: the receiver's half of TCP.
	Delivery
	// Lane is the programs of the lane, with the redirection of packets.
	Lane
	// Reads is the proxy's system calls that take bytes from a socket.
	Reads
	// Writes is those that give bytes to a socket, without the receiver's half.
	Writes
	// Waits is the rest of the proxy's time in the kernel.
	Waits
	// Code is the proxy in user space.
	Code
	// Parts is the number of parts.
	Parts
)

// String is its name in pictures.
func (p Part) String() string {
	return [...]string{
		"client and server", "TCP of the receiver (softirq)", "lane", "proxy reads", "proxy writes", "proxy waits, is scheduled", "proxy's own code",
	}[p]
}

// partColors are distinct without colour vision by their lightness, in the order of Part.
var partColors = [Parts]string{"#dfe4e9", "#a9b6c6", "#c9a227", "#8cc4bf", ourColor, "#b4532a", "#1f2933"}

// A Breakdown is where the CPU time of a contestant's trials went, that of the load and the sink included.
type Breakdown struct {
	Scenario, Title, Contestant string
	// Unit is "request" or "GB", and Units is how many there were.
	Unit    string
	Units   float64
	Seconds [Parts]float64
}

// Each is the CPU time in seconds of a part for each unit.
func (s *Breakdown) Each(p Part) float64 {
	if s.Units <= 0 {
		return 0
	}
	return s.Seconds[p] / s.Units
}

// Total is that of all parts.
func (s *Breakdown) Total() (sum float64) {
	for p := range Parts {
		sum += s.Each(p)
	}
	return sum
}

// The picture's measures in pixels.
const (
	shareHeight = 26.0
	sharePitch  = 40.0
)

// WriteShares draws where the time of each contestant went: a bar for each, as long as its CPU time for a unit beside that
// of the longest of its scenario. about are lines below the title.
func WriteShares(w io.Writer, list []Breakdown, about []string) error {
	s := new(svg)
	title := "CPU time by part of the work"
	s.text(margin, 36, title, style{20, inkColor, "start", true})
	y := 58.0
	for _, text := range about {
		for _, line := range Wrap(text, fitting(12, pictureWidth-2*margin)) {
			s.text(margin, y, line, style{12, quietColor, "start", false})
			y += 17
		}
	}
	y = legend(s, y+8)
	for i := range list {
		if i == 0 || list[i].Scenario != list[i-1].Scenario {
			y += 14
			s.line(margin, y, pictureWidth-margin, y, gridColor, 1, false)
			s.text(margin, y+22, list[i].Scenario+": "+list[i].Title, style{14, inkColor, "start", true})
			y += 34
		}
		list[i].draw(s, y, longest(list, list[i].Scenario))
		y += sharePitch
	}
	_, err := w.Write(s.document(pictureWidth, y+16, title))
	return err
}

// legend names the colours, and returns where the rest begins.
func legend(s *svg, y float64) float64 {
	x := margin
	for p := range Parts {
		width := 16 + float64(len(p.String()))*12*glyph + 22
		if x+width > pictureWidth-margin {
			x, y = margin, y+20
		}
		s.rect(x, y, 11, 11, partColors[p])
		s.text(x+16, y+10, p.String(), style{12, inkColor, "start", false})
		x += width
	}
	return y + 14
}

// longest is the greatest total of a scenario.
func longest(list []Breakdown, scenario string) (most float64) {
	for i := range list {
		if list[i].Scenario == scenario {
			most = max(most, list[i].Total())
		}
	}
	return most
}

// draw draws one bar.
func (s *Breakdown) draw(to *svg, y, most float64) {
	to.text(margin+nameWidth-8, y+17, clip(s.Contestant, 12, nameWidth-8), style{12, inkColor, "end", true})
	x, width := margin+nameWidth, pictureWidth-2*margin-nameWidth-2*valueWidth
	for p := range Parts {
		if most <= 0 {
			break
		}
		part := s.Each(p) / most * width
		to.rect(x, y, part, shareHeight, partColors[p])
		if text := fmt.Sprintf("%.0f %%", 100*s.Each(p)/s.Total()); part > 34 {
			color := inkColor
			if p == Writes || p == Code || p == Waits {
				color = groundColor
			}
			to.text(x+part/2, y+17, text, style{11, color, "middle", false})
		}
		x += part
	}
	to.text(x+8, y+17, Seconds(s.Total())+"/"+s.Unit, style{12, inkColor, "start", true})
}

// WriteSharesText writes the same as text: a line for each contestant, in shares of its total.
func WriteSharesText(w io.Writer, list []Breakdown) error {
	for i := range list {
		s := &list[i]
		if _, err := fmt.Fprintf(w, "%s, %s: %s/%s", s.Scenario, s.Contestant, Seconds(s.Total()), s.Unit); err != nil {
			return err
		}
		for p := range Parts {
			if s.Total() > 0 {
				if _, err := fmt.Fprintf(w, "; %s %.1f %%", p, 100*s.Each(p)/s.Total()); err != nil {
					return err
				}
			}
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}
