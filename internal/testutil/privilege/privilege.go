// Package privilege runs a test once more in another process with fewer rights: as an ordinary user, or in a
// sandbox that refuses system calls. The rights are lost for good, so the test's own process cannot be used.
//
//	func TestQuota(t *testing.T) {
//		if !privilege.Ordinary(t) {
//			return // has run in a child
//		}
//		...
//	}
package privilege
