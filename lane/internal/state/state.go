// Package state is the table of a session's states. It has the states, the actors that move a session from one
// state to another, and what happens to a packet in each state. The BPF programs get the numbers from Header.
// The tests check every interleaving of two CPUs, of user space, and of the death of a process.
//
// A session's state is in one word of memory that the programs and user space share. It changes only by
// compare-and-swap. The word also counts its changes, so that a claim that was taken away is never mistaken for
// a later one.
package state

import (
	"fmt"
	"strings"
)

// A State says who carries a session.
type State uint8

// The states of a session.
const (
	// Free: the slot has no session.
	Free State = iota
	// User: user space relays, and may touch the sockets. The programs note which bytes they let through to the
	// sockets.
	User
	// Armed: user space holds nothing of the session, and has promised not to touch its sockets.
	Armed
	// Claimed: one CPU looks at the sockets. No other CPU can move the session to Lane.
	Claimed
	// Lane: packets are translated. The sockets are ghosts: no packet reaches them, and no packet of theirs
	// gets out.
	Lane
	// Done: both directions have ended, or a reset has passed. Late packets are still translated.
	Done
	// Held: user space has stopped the lane. Packets are dropped, and the endpoints send them again.
	Held
	// Reset: the sockets are gone. Packets go to the kernel's stack, which resets their sender.
	Reset

	count
)

var names = [count]string{"free", "user", "armed", "claimed", "lane", "done", "held", "reset"}

// String returns the state's name.
func (s State) String() string {
	if s >= count {
		return "unknown"
	}
	return names[s]
}

// All returns the states, in order of their numbers.
func All() []State {
	all := make([]State, count)
	for i := range all {
		all[i] = State(i)
	}
	return all
}

// An Actor is a program, or a part of user space, that changes a session's state.
type Actor uint8

// The actors.
const (
	// Owner is the process that has the session, or has adopted it.
	Owner Actor = iota
	// Ingress is the program on a CPU at which a packet of the session arrives.
	Ingress
	// Claimer is the program on the CPU that has claimed the session.
	Claimer
	// Egress is the guard on packets that leave the sockets.
	Egress
)

// String returns the actor's name.
func (a Actor) String() string { return [...]string{"owner", "ingress", "claimer", "egress"}[a] }

// A Transition is a change of state.
type Transition struct {
	From, To State
	By       Actor
	When     string
}

// Transitions are all allowed changes of state.
var Transitions = []Transition{
	{Free, User, Owner, "the session is registered"},
	{User, Free, Owner, "the session has ended in user space"},
	{User, Armed, Owner, "nothing is held, and a grace period has passed since it was registered"},
	{Armed, User, Owner, "user space wants to touch the sockets"},
	{Armed, Claimed, Ingress, "a data packet arrives"},
	{Armed, User, Egress, "a FIN or RST leaves a socket"},
	{Claimed, Lane, Claimer, "both sockets are empty, and the packet is the next one"},
	{Claimed, User, Claimer, "they are not"},
	{Claimed, User, Ingress, "another packet with data, FIN or RST goes up meanwhile"},
	{Claimed, User, Egress, "data, a FIN or an RST leaves a socket"},
	{Claimed, User, Owner, "user space wants to touch the sockets"},
	{Lane, Done, Ingress, "both FINs are acknowledged, or a reset has passed"},
	{Lane, Held, Owner, "the session shall come back or end"},
	{Held, User, Owner, "the sockets are restored"},
	{Held, Lane, Owner, "its process has died while it came back, and another one adopts it"},
	{Held, Done, Owner, "both directions had ended when it was stopped"},
	{Held, Reset, Owner, "the session shall end"},
	{Done, Reset, Owner, "it has ended by a reset: nobody goes on with it"},
	{Done, Free, Owner, "nothing has passed for a while"},
	{Reset, Free, Owner, "nothing has passed for a while"},
}

// Allowed reports whether the actor may make that change.
func Allowed(from, to State, by Actor) bool {
	for _, t := range Transitions {
		if t.From == from && t.To == to && t.By == by {
			return true
		}
	}
	return false
}

// A Word is a state with the count of changes before it.
type Word uint64

// stateBits are the low bits of a word, which hold the state.
const stateBits = 8

// State returns the word's state.
func (w Word) State() State { return State(w & (1<<stateBits - 1)) }

// Next returns the word of a session that changes to s.
func (w Word) Next(s State) Word { return (w>>stateBits+1)<<stateBits | Word(s) }

// A Fate is what happens to a packet.
type Fate uint8

// The fates.
const (
	// Pass: the packet goes on as if there were no lane.
	Pass Fate = iota
	// Note: the number after the packet is noted, then the state is read again, and the packet goes to its
	// socket.
	Note
	// Try: a packet with data claims the session. Other packets have the fate Note.
	Try
	// Spoil: the packet is noted, takes the claim away, and goes to its socket.
	Spoil
	// Translate: the packet goes to the other connection.
	Translate
	// Drop: the packet is dropped.
	Drop
	// Confine: the packet is dropped, unless it only acknowledges.
	Confine
	// Disarm: the packet moves the session from Armed or Claimed to User, and passes.
	Disarm
)

// Arriving returns the fate of a packet with data, FIN or RST that arrives from an endpoint. In the states in
// which such a packet is noted, a packet that only acknowledges passes.
func Arriving(s State) Fate {
	switch s {
	case User:
		return Note
	case Armed:
		return Try
	case Claimed:
		return Spoil
	case Lane, Done:
		return Translate
	case Held:
		return Drop
	}
	return Pass
}

// Leaving returns the fate of a packet that leaves a socket of the session. In state Armed only a FIN or RST
// disarms, and in state Claimed also data. An acknowledgement passes in both.
func Leaving(s State) Fate {
	switch s {
	case Armed, Claimed:
		return Disarm
	case Lane, Done:
		return Drop
	case Held:
		return Confine
	}
	return Pass
}

// Header returns the constants of the table for the BPF programs. A test checks that bpf/state.h has this text.
func Header() string {
	var b strings.Builder
	b.WriteString("/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */\n\n")
	b.WriteString("/* Written by go test ./lane/internal/state -run TestHeader -update. DO NOT EDIT. */\n")
	b.WriteString("#ifndef STATE_H\n#define STATE_H\n\nenum state {\n")
	for _, s := range All() {
		fmt.Fprintf(&b, "\tSTATE_%s = %d,\n", strings.ToUpper(s.String()), s)
	}
	fmt.Fprintf(&b, "};\n\nenum { STATE_BITS = %d };\n\n", stateBits)
	b.WriteString("/* Which actor may change the state from one to another. */\n")
	for _, t := range Transitions {
		fmt.Fprintf(&b, "#define MAY_%s_%s_TO_%s 1\n", strings.ToUpper(t.By.String()), strings.ToUpper(t.From.String()), strings.ToUpper(t.To.String()))
	}
	b.WriteString("\n#endif\n")
	return b.String()
}
