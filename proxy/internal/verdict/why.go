package verdict

import (
	"fmt"
	"strings"
	"time"
)

// Why returns the figures behind the verdict, as a short sentence.
func (v *Verdict) Why() string {
	s := &v.sample
	if s.Duration <= 0 {
		return "its duration is 0"
	}
	if v.Young {
		return "too short to judge: only " + round(s.Duration) + " were measured"
	}
	share := fmt.Sprintf("%.0f %% of %s", 100*v.Shares[v.Kind], round(s.Duration))
	switch v.Kind {
	case Client:
		return "waited " + share + " for the client" + s.A.host(&v.parts.a, s.Duration)
	case ClientNetwork:
		return "the path to the client took " + share + s.A.network(s.Waits.ToA)
	case Endpoint:
		return "waited " + share + " for the endpoint" + s.B.host(&v.parts.b, s.Duration)
	case EndpointNetwork:
		return "the path to the endpoint took " + share + s.B.network(s.Waits.ToB)
	case Proxy:
		return v.proxy()
	case Limit:
		return "waited " + share + " for bandwidth"
	case Idle:
		return "no side waited for bytes " + strings.Replace("for "+share, "for 100 % of", "in", 1)
	default:
		return fmt.Sprintf("waited %v for the client and %v for the endpoint, and the kernel did not report their connections",
			round(s.Waits.ForA+s.Waits.ToA), round(s.Waits.ForB+s.Waits.ToB))
	}
}

// proxy describes the waits for this process: for a CPU, which is an upper bound, and for a turn of its loop.
func (v *Verdict) proxy() string {
	all := round(v.sample.Duration)
	turn := fmt.Sprintf("bytes waited for a busy event loop for %v of %v", round(v.parts.turn), all)
	switch cpu := v.parts.cpu; {
	case cpu < v.sample.Duration/100:
		return turn
	case v.parts.turn < v.sample.Duration/100:
		return fmt.Sprintf("Penstock had no CPU for %v of %v (upper bound)", round(cpu), all)
	default:
		return fmt.Sprintf("Penstock had no CPU for %v of %v (upper bound), and %s", round(cpu), all, turn)
	}
}

// host describes a peer that keeps the session waiting. The described times add up to the share of the verdict.
// Times below a hundredth of the whole are left out.
func (p *Peer) host(of *hostParts, all time.Duration) string {
	var list []string
	add := func(d time.Duration, format string) {
		if d > 0 && d >= all/100 {
			list = append(list, fmt.Sprintf(format, round(d)))
		}
	}
	add(of.sent, "it sent nothing for %v")
	add(of.took, "it read nothing for %v")
	add(of.shut, "its window was closed for %v")
	text := strings.Join(list, ", ")
	if of.took > of.sent && !p.Local && p.Busy > 0 {
		closed := ""
		if w := p.window(); w < 0.995 {
			closed = fmt.Sprintf(" for %.0f %% of the time when bytes waited for it", 100*w)
		}
		text += " (its receive window was closed" + closed + ")"
	}
	return ": " + text
}

// network describes a path that keeps the session waiting.
func (p *Peer) network(room time.Duration) string {
	var list []string
	if p.Retransmitted > 0 {
		list = append(list, fmt.Sprintf("%d of %d packets were sent again", p.Retransmitted, p.SegmentsSent))
	}
	if p.Unanswered > 0 {
		list = append(list, fmt.Sprintf("nothing was acknowledged for %v", round(min(p.Unanswered, p.Busy))))
	}
	if p.OutOfOrder > 0 {
		list = append(list, fmt.Sprintf("%d of %d packets arrived out of order", p.OutOfOrder, p.SegmentsReceived))
	}
	if rtt := p.roundTrip(room); rtt > 0 {
		list = append(list, fmt.Sprintf("a round trip takes %v, %v without a queue", round(rtt), round(p.MinRTT)))
	}
	if room > 0 && p.DeliveryRate > 0 {
		list = append(list, fmt.Sprintf("it delivers %.1f Mbit/s", float64(p.DeliveryRate)*8/1e6))
	}
	if len(list) == 0 {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}

// roundTrip is the round-trip time of the direction that the session waits for.
func (p *Peer) roundTrip(room time.Duration) time.Duration {
	if room > 0 {
		return p.RTT
	}
	return max(p.ReceiverRTT, p.RTT)
}

// round returns a time of three digits or so, such as "734 ms".
func round(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second / 10)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(10 * time.Microsecond)
	}
	text := d.String()
	number := strings.TrimRight(text, "hmnsµ")
	if strings.Trim(number, "0123456789.") != "" {
		return text // of several units
	}
	return number + " " + text[len(number):]
}
