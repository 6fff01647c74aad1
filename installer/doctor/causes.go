package doctor

import "regexp"

// A knownCause is a log message with its meaning and its fix.
type knownCause struct {
	message  *regexp.Regexp
	why, fix string
}

// knownCauses are messages of Kubernetes' components, etcd, containerd and runc. The first
// one in the table that a log has counts.
var knownCauses = []knownCause{
	{regexp.MustCompile(`(?i)running with swap on is not supported`), "the kubelet does not start while swap is on", "swapoff -a, and remove swap from /etc/fstab"},
	{regexp.MustCompile(`(?i)misconfiguration: kubelet cgroup driver`), "the kubelet and containerd use different cgroup drivers", "grep -r -i cgroup /var/lib/kubelet/config.yaml /etc/containerd"},
	{regexp.MustCompile(`(?i)no space left on device|database space exceeded`), "it cannot write", "df -h; df -i"},
	{regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid yet or has expired, or a clock is wrong", "./install certs check-expiration; date -u"},
	{regexp.MustCompile(`(?i)certificate signed by unknown authority|certificate is valid for .*, not `), "its certificate does not belong to this cluster or this address", "compare the files below /etc/kubernetes/pki with those of the other control planes: sha256sum /etc/kubernetes/pki/ca.crt"},
	{regexp.MustCompile(`(?i)address already in use`), "another process has its port", "ss -tlnp"},
	{regexp.MustCompile(`(?i)unknown flag|unknown shorthand flag|unknown feature gate|unrecognized feature gate|invalid argument ".*" for`), "it does not know one of its flags, and exits", "correct the flag"},
	{regexp.MustCompile(`(?i)strict decoding error|failed to load kubelet config|yaml: line|cannot unmarshal|couldn't get version/kind`), "it cannot read its configuration", "correct the file that the log names"},
	{regexp.MustCompile(`(?i)too many open files|inotify`), "a limit of the kernel is reached", "sysctl fs.inotify fs.file-max"},
	{regexp.MustCompile(`(?i)leaderelection lost`), "this host was too slow for it and the API server; it restarts automatically", "cat /proc/pressure/io /proc/pressure/cpu"},
	{regexp.MustCompile(`(?i)failed to pull image|ErrImageNeverPull|image .*not found`), "an image is not on this host, and cannot be pulled here", "./install import"},
	{regexp.MustCompile(`(?i)walpb: crc mismatch|wal: .*corrupt|snap: .*corrupt|invalid database|panic: freepages`), "etcd's data is damaged, perhaps by a power cut", "restore a snapshot of etcd, or reset this control plane and join it again"},
	{regexp.MustCompile(`(?i)operation not permitted|permission denied`), "the kernel, a security module or a file's mode denies it", "journalctl -k -e | grep -i -e denied -e apparmor; ls -lZ"},
	{regexp.MustCompile(`(?i)no such host|i/o timeout|connection refused|no route to host|network is unreachable`), "it cannot reach what it needs", "see the other suspected problems, and check addresses and routes: ip address; ip route"},
}

// cause returns the first known cause that a text has, or nil.
func cause(lines []string) *knownCause {
	for i := range knownCauses {
		for _, line := range lines {
			if knownCauses[i].message.MatchString(line) {
				return &knownCauses[i]
			}
		}
	}
	return nil
}
