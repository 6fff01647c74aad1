package kubeletcheck

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// The IDs of user namespaces: the kubelet gives each pod with one a block of this many.
const (
	idsUnit        = 65536
	allIDs         = 1 << 32
	defaultMaxPods = 110
)

// getsubids are the paths at which the kubelet finds that command, with the PATH of systemd.
var getsubids = []string{"usr/local/sbin/getsubids", "usr/local/bin/getsubids", "usr/sbin/getsubids", "usr/bin/getsubids"}

// beMappable is for the number of IDs of a pod's user namespace. The kubelet's range of IDs must
// consist of blocks of this size, one for each pod; otherwise it does not start.
func beMappable(v value) {
	perPod, maxPods := int64(idsUnit), int64(cmp.Or(v.check.config.MaxPods, defaultMaxPods))
	if u := v.check.config.UserNamespaces; u != nil {
		perPod = ptr.Deref(u.IDsPerPod, idsUnit)
	}
	if v.check.minor < 30 || !v.check.enabled("UserNamespacesSupport") || !isBlock(perPod) {
		return // no such code, off, or reported by another rule
	}
	from, r := "all IDs of this host", idRange{perPod, allIDs - perPod}
	fix := "use a smaller power of two"
	if v.kubeletHasIDs() {
		uids, others := v.subIDs("etc/subuid")
		gids, more := v.subIDs("etc/subgid")
		same := len(uids) == 1 && slices.Equal(uids, gids)
		fix = fmt.Sprintf("write the same line to both files, kubelet:%d:%d, if no other user has these IDs; or remove the user: userdel kubelet", perPod, perPod*maxPods)
		v.badIf(!same, fix, ": the ranges of the user kubelet in /etc/subuid (%s) and /etc/subgid (%s) are not one and the same: the kubelet does not start", ranges(uids), ranges(gids))
		if !same {
			return
		}
		from, r = "the range of the user kubelet in /etc/subuid and /etc/subgid", uids[0]
		shared := slices.DeleteFunc(append(others, more...), func(other idRange) bool { return !other.overlaps(r) })
		v.ignoredIf(len(shared) > 0, "give the user kubelet a range that no other user has",
			": %s (%s) overlaps the range of another user (%s): pods with a user namespace could have the IDs of that user's containers", from, ranges(uids), ranges(shared))
	}
	whole := r.start >= perPod && r.start%perPod == 0 && r.length%perPod == 0
	v.badIf(!whole, fix, ": %s, %d IDs from %d on, is not made of blocks of %d, the IDs of a pod: the kubelet does not start", from, r.length, r.start, perPod)
	v.badIf(whole && r.length/perPod < maxPods, fix, ": %s has %d IDs, enough for %d pods of %d, and maxPods is %d: the kubelet does not start",
		from, r.length, r.length/perPod, perPod, maxPods)
}

// isBlock reports whether the kubelet accepts a number of IDs for each pod.
func isBlock(n int64) bool { return n >= idsUnit && n < allIDs && n%idsUnit == 0 }

// kubeletHasIDs reports whether the kubelet reads its range from the host's files: there is a user
// kubelet and the command getsubids. Another service that knows the ranges cannot be checked.
func (v value) kubeletHasIDs() bool {
	if v.check.Root == nil || v.userID() == "" {
		return false
	}
	if source := subidSource.FindSubmatch(v.file("etc/nsswitch.conf")); source != nil && string(source[1]) != "files" {
		return false
	}
	return slices.ContainsFunc(getsubids, func(path string) bool {
		_, err := fs.Stat(v.check.Root, path)
		return err == nil
	})
}

func (v value) file(name string) []byte {
	data, _ := fs.ReadFile(v.check.Root, name) // no file has no lines
	return data
}

// userID returns the ID of the user kubelet, or nothing.
func (v value) userID() string {
	for line := range strings.Lines(string(v.file("etc/passwd"))) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[0] == "kubelet" {
			return fields[2]
		}
	}
	return ""
}

var subidSource = regexp.MustCompile(`(?m)^subid:[ \t]*(.*?)[ \t]*$`)

type idRange struct{ start, length int64 }

func (r idRange) overlaps(other idRange) bool {
	return r.start < other.start+other.length && other.start < r.start+r.length
}

// subIDs returns the ranges of the user kubelet and of other users in /etc/subuid or /etc/subgid.
func (v value) subIDs(name string) (own, others []idRange) {
	for line := range strings.Lines(string(v.file(name))) {
		var r idRange
		user, numbers, _ := strings.Cut(strings.TrimSpace(line), ":")
		if _, err := fmt.Sscanf(numbers, "%d:%d", &r.start, &r.length); err != nil {
			continue
		}
		if user == "kubelet" || user == v.userID() {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	return own, others
}

func ranges(list []idRange) string {
	var words []string
	for _, r := range list {
		words = append(words, fmt.Sprintf("%d:%d", r.start, r.length))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}
