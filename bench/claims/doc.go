// Package claims holds published claims about the ideas that Penstock implements, one Claim
// for each figure: its quantity, how to measure it here, and the honest version, where it is
// wrong or misleads. docs/claims.md is written from it, and penstock-bench claims prints it
// with fresh figures.
//
// Where times are compared, contestants take turns, of about a millisecond where the work
// allows it. So other work of the machine affects all of them alike, and ratios are those
// within a round. It is for Linux only.
package claims
