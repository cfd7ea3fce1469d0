// Package claims holds what has been published about the ideas that Penstock
// implements, one Claim for each figure: what it measures, how to measure it
// here, and where it is wrong or misleads, the honest version. docs/claims.md is
// written from it, and penstock bench claims prints it with fresh figures.
//
// Where times are compared, contestants take turns, of about a millisecond where
// the work allows it: what else the machine does meets all of them alike, and
// ratios are those within a round. It is for Linux only.
package claims
