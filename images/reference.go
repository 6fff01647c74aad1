package images

import (
	"github.com/distribution/reference"

	"airlift/fault"
)

// Normalize turns an image name as people type it into the full reference a
// container runtime files it under: "nginx" becomes
// "docker.io/library/nginx:latest". A name with both a tag and a digest keeps
// the digest alone, as container runtimes do.
func Normalize(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fault.New(fault.Usage, "an image looks like registry.example.com/team/app:v1.2.3",
			"image %q: %w", name, err)
	}
	return ref.String(), nil
}
