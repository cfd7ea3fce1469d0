// Package netns makes networks for tests of network failures: hosts that are network namespaces, links between
// them, routes that can be removed, and backends in processes that can be killed or frozen.
//
//	func TestMain(m *testing.M) {
//		netns.Main() // serves, in the processes that Backend starts
//		leak.Main(m)
//	}
//
//	func TestUnreachable(t *testing.T) {
//		if !netns.Alone(t) {
//			return // has run in a child with its own network
//		}
//		here, there := netns.Here(t), netns.New(t)
//		link := here.Join(there)
//		backend := there.Backend("one", netns.Echo, netip.AddrPortFrom(link.Far, 5432))
//		...
//		there.Silence(link.Near) // its packets to us are lost without a word
//	}
//
//	here: the test's process             there
//	lo 127.0.0.1                         lo 127.0.0.1, and addresses of Address
//	v0 10.98.0.1/30 ──── veth(4) ──── v0 10.98.0.2/30
//
// It runs ip(8). Without ip(8) tests are skipped, or fail if CI is set; without namespaces they are skipped.
// Either says so.
package netns
