package redact

import (
	"bytes"
	"testing"
)

// BenchmarkLog redacts a log of the size that the doctor keeps of one.
func BenchmarkLog(b *testing.B) {
	line := []byte(`E1126 12:00:00.000000    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"etcd\" with CrashLoopBackOff: \"back-off 10s restarting failed container=etcd\"" pod="kube-system/etcd-host1" podUID="0123456789abcdef0123456789abcdef"` + "\n")
	text := bytes.Repeat(line, 4<<20/len(line))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Log(text)
	}
}
