package soak

import "sync/atomic"

// action is something that ends do, and that is counted when it is done.
type action int

const (
	opened action = iota
	silentClients
	halfCloses
	closedFirst
	quietResets
	clientResets
	serverResets
	shutResets
	left
	leftUnread
	resetsSeen
	urgentBytes
	messages
	arrivals
	idles
	bursts
	stalls
	tinyBuffers
	summaries
	throughLane
	flips
	actions int = iota
)

var actionNames = [actions]string{
	opened:        "connections opened",
	silentClients: "clients that sent nothing",
	halfCloses:    "half-closes with bytes to come from the other end",
	closedFirst:   "ends closed once the other had ended, without a half-close",
	quietResets:   "resets of connections on which all had arrived",
	clientResets:  "resets in the middle by the client",
	serverResets:  "resets in the middle by the server",
	shutResets:    "resets after one's own end of file",
	left:          "closes in the middle",
	leftUnread:    "closes in the middle with bytes unread, which are resets",
	resetsSeen:    "resets and broken pipes seen at the other end",
	urgentBytes:   "urgent bytes",
	messages:      "sends",
	arrivals:      "sends that have come whole",
	idles:         "pauses of 50 ms and more",
	bursts:        "sends of 256 KiB and more after such a pause",
	stalls:        "stalls: an end does not read",
	tinyBuffers:   "ends with buffers below 32 KiB",
	summaries:     "summaries asked for while busy",
	throughLane:   "connections by the listener whose sessions leave user space",
	flips:         "times that the lane was switched off or on",
}

// tally counts actions; safe for concurrent use.
type tally struct {
	done    [actions]atomic.Int64
	dialed  atomic.Int64    // before the connection is made
	offered [2]atomic.Int64 // bytes, before they are sent
}

func (t *tally) count(a action) { t.done[a].Add(1) }

// Count is how often something was done.
type Count struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

func (t *tally) counts() []Count {
	all := make([]Count, actions)
	for i := range all {
		all[i] = Count{actionNames[i], t.done[i].Load()}
	}
	return all
}
