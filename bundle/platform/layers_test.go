package platform_test

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/images"

	"airlift/bundle/platform"
)

// IsLayer accepts only what containerd unpacks with its default configuration: it takes the type for a layer, knows its
// compression, and needs no other command for it.
func TestIsLayerAgreesWithContainerd(t *testing.T) {
	accepted := 0
	for _, base := range []string{
		"", "application/wasm", "application/octet-stream", "application/vnd.wasm.content.layer.v1+wasm", "application/vnd.erofs.layer.v1",
		"application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.nondistributable.v1.tar", "application/vnd.oci.image.layer.nydus.blob.v1",
		"application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.docker.image.rootfs.diff.tar.zstd",
		"application/vnd.docker.image.rootfs.foreign.diff.tar", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.foreign.diff.tar.zstd", "application/vnd.cncf.helm.chart.content.v1.tar", "application/vnd.containerd.container.rw.tar",
	} {
		for _, more := range []string{"", "+gzip", "+zstd", "+encrypted", "+gzip+encrypted", "+xz"} {
			mediaType := base + more
			_, err := images.DiffCompression(context.Background(), mediaType)
			unpacked := err == nil && images.IsLayerType(mediaType)
			// containerd takes all other extensions for none, and then fails to read the content.
			known := more == "" || more != "+xz" && more != "+encrypted" && more != "+gzip+encrypted" && images.IsDockerType(base) == false
			if got := platform.IsLayer(mediaType); got != (unpacked && known) {
				t.Errorf("%q: %v, but containerd: %v", mediaType, got, unpacked)
			} else if got {
				accepted++
			}
		}
	}
	if accepted != 11 {
		t.Errorf("%d types are accepted", accepted)
	}
}
