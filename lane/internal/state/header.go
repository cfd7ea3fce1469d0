package state

import (
	"fmt"
	"strings"
)

// Header returns the constants of the table for the BPF programs. bpf/state.h is this text, which a
// test holds.
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
