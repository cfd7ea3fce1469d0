// Package pages types the commands of docs/tutorial.md, docs/howto.md, docs/haproxy.md and docs/adopting.md as they stand
// there, with real servers. It has no code but its tests.
package pages
