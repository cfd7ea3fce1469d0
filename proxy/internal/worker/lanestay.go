package worker

import (
	"sync/atomic"

	"github.com/penstock/penstock/relay"
)

// A stay is why a session stays in user space, as far as this process decides it.
type stay uint8

const (
	mayLeave stay = iota
	notYet
	stayOff
	stayTransparent
	stayUnix
	stayTLS
	stayBandwidth
	stayMirror
	stayRewrite
	stayEnded
	stayFlow
	staySilent

	stays = iota
)

var stayTexts = [stays]string{
	stayOff: "switched off", stayTransparent: "transparent", stayUnix: "unix socket", stayTLS: "TLS ends or begins here", stayBandwidth: "bandwidth limit",
	stayMirror: "mirror", stayRewrite: "rewrite", stayEnded: "a side has ended", stayFlow: "no gap", staySilent: "the endpoint has sent nothing",
}

var stayOf = map[relay.Obstacle]stay{
	relay.ObstacleSocket: stayUnix, relay.ObstacleLayer: stayTLS, relay.ObstacleBandwidth: stayBandwidth,
	relay.ObstacleMirror: stayMirror, relay.ObstacleRewrite: stayRewrite, relay.ObstacleEnd: stayEnded,
}

// stayCounts count sessions that stay in user space.
type stayCounts [stays]atomic.Int64

// staysHere answers the one question: may this session leave user space? It may if nothing of it has to be looked
// at, and its endpoint has shown that it answers: first-byte timeouts, trials of breakers and the records of
// sessions need no more of it then. The PROXY header was written before the session began. last says that it was
// asked before, and need not have exchanged much.
func (w *worker) staysHere(n *conn, last bool) stay {
	switch n.ref.serving.socket.Service().Lane { // as the listener is now, not as it was
	case LaneTransparent:
		return stayTransparent
	case LaneOff:
		return stayOff
	}
	if why := n.session.Obstacle(); why != relay.NoObstacle {
		return stayOf[why]
	}
	limits := n.limits()
	switch {
	case !n.session.Heard(), !last && n.session.Moves() < laneMoves && !flows(n):
		return notYet
	case limits.Answered != nil && n.result().Duration <= limits.FirstByte: // a trial that is not reported
		return notYet
	}
	return mayLeave
}

// flows reports whether a session has moved as much as a flow does, be it by few reads and writes.
func flows(n *conn) bool {
	r := n.result()
	return r.AToB.Bytes()+r.BToA.Bytes() >= gapBytes
}

// LaneStays returns how many sessions have stayed in user space, by reason; only reasons that occurred. The lane has
// further ones.
func (g *Group) LaneStays() map[string]int64 {
	counts := make(map[string]int64)
	for why, text := range stayTexts {
		if n := g.stays[why].Load(); n > 0 && text != "" {
			counts[text] = n
		}
	}
	return counts
}
