package apply

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"airlift/images/release"
	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// The history: each version of a manifest is kept in Secrets of kube-system, because manifests can have secrets. What does not fit into
// one Secret is in further ones, which are written first.
const (
	secretPrefix  = "airlift-manifest."
	historyType   = "airlift.dev/manifest"
	manifestLabel = "airlift.dev/manifest"
	numberLabel   = "airlift.dev/revision"
	partLabel     = "airlift.dev/part"     // of all Secrets but the first
	completeLabel = "airlift.dev/complete" // its workloads ran

	factsKey, contentKey = "facts", "manifest.gz"

	// partSize is the most that one Secret has: the API server accepts 1 MiB of data.
	partSize = 900 << 10
	// versionsKept is how many versions of a manifest are kept, in addition to the last one that ran.
	versionsKept = 10
	// largest is the most that a manifest may have, unpacked.
	largest = 256 << 20
)

// A Revision is a version of a manifest in the history.
type Revision struct {
	Manifest  string `json:"manifest"`
	Number    int    `json:"revision"`
	Chart     string `json:"chart,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	SHA256    string `json:"sha256"`
	Bundle    string `json:"bundle"`         // sha256 of the manifest.json of the file that it is from
	File      string `json:"file,omitempty"` // the name that this file had
	Began     string `json:"began"`          // when it was first applied, in UTC
	// Images are the images that its pods name, and the images of its file that it mentions.
	Images []string `json:"images,omitempty"`
	// New reports that there was no version of the manifest before.
	New bool `json:"new,omitempty"`
	// Size is the size of the manifest, and Parts the number of its Secrets.
	Size  int `json:"size"`
	Parts int `json:"parts"`

	// Kubernetes is the version for which it was rendered; an older Airlift did not keep it.
	Kubernetes string `json:"kubernetes,omitempty"`

	Complete bool `json:"complete"`          // its workloads ran
	Current  bool `json:"current,omitempty"` // the last that was applied
	// Damaged is set if its first Secret cannot be read. Then only its manifest and its number are known.
	Damaged bool `json:"damaged,omitempty"`

	data []byte // of the first Secret
}

// damage is the error of a version that cannot be read. Without its Secret, commands go on as if it had never been kept.
func (r Revision) damage(why error) error {
	return fault.New(fault.Failure, "version %d of manifest %q in the history is damaged: %w", r.Number, r.Manifest, why).
		Hint("to go on without this version: " + r.RemoveCommand())
}

// RemoveCommand is the command that removes a damaged version from the history.
func (r Revision) RemoveCommand() string {
	return "kubectl delete secret -n " + metav1.NamespaceSystem + " " + secretName(r.Manifest, r.Number, 0)
}

// same reports whether the manifest has this version.
func (r Revision) same(m *Manifest) bool {
	return r.SHA256 == m.SHA256 && r.Chart == m.Chart && r.Namespace == m.Namespace
}

func secretName(manifest string, number, part int) string {
	name := fmt.Sprintf("%s%s.%d", secretPrefix, manifest, number)
	if part > 0 {
		name += fmt.Sprintf(".%d", part)
	}
	return name
}

// History returns the kept versions of a manifest, or of all manifests if name is "". The oldest is first.
func (s *Applier) History(ctx context.Context, name string) ([]Revision, error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, err
	}
	list, err := readHistory(ctx, s.client.API, name)
	for i, r := range list {
		list[i].Current = inventory[r.Manifest].Revision == r.Number
	}
	return list, err
}

func readHistory(ctx context.Context, api kubernetes.Interface, name string) (list []Revision, err error) {
	selector := manifestLabel + ",!" + partLabel
	if name != "" {
		selector = manifestLabel + "=" + name + ",!" + partLabel
	}
	secrets, err := wait.List(ctx, api.CoreV1().Secrets(metav1.NamespaceSystem).List, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	for _, secret := range secrets.Items {
		if secret.Type != historyType {
			continue
		}
		r := Revision{}
		if err := yaml.Unmarshal(secret.Data[factsKey], &r); err != nil || secret.Name != secretName(r.Manifest, r.Number, 0) {
			r = Revision{Manifest: secret.Labels[manifestLabel], Damaged: true}
			number, isOurs := strings.CutPrefix(secret.Name, secretPrefix+r.Manifest+".")
			if r.Number, err = strconv.Atoi(number); !isOurs || err != nil {
				continue // of no version
			}
		}
		r.Complete = secret.Labels[completeLabel] == "true"
		r.data = secret.Data[contentKey]
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Revision) int { return cmp.Or(strings.Compare(a.Manifest, b.Manifest), a.Number-b.Number) })
	return list, nil
}

// keep stores a version of a manifest, unless it is the newest one, and returns its number. before is the manifest's entry.
func (s *Applier) keep(ctx context.Context, m *Manifest, before Entry) (int, error) {
	list, err := readHistory(ctx, s.client.API, m.Name)
	if err != nil {
		return 0, err
	}
	number := before.Revision
	if n := len(list); n > 0 {
		if newest := list[n-1]; newest.same(m) && newest.Number >= before.Revision {
			return newest.Number, nil
		}
		number = max(number, list[n-1].Number)
	}
	number++
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(m.data); err != nil {
		return 0, err
	}
	if err := z.Close(); err != nil {
		return 0, err
	}
	parts := slices.Collect(slices.Chunk(packed.Bytes(), partSize))
	facts, err := yaml.Marshal(Revision{
		Manifest: m.Name, Number: number, Chart: m.Chart, Namespace: m.Namespace, SHA256: m.SHA256, Bundle: m.Bundle, File: m.File,
		Began: time.Now().UTC().Format(time.RFC3339), Images: m.Images(), New: before.SHA256 == "", Size: len(m.data), Parts: len(parts), Kubernetes: m.Kubernetes,
	})
	if err != nil {
		return 0, err
	}
	for i, part := range slices.Backward(parts) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: secretName(m.Name, number, i), Namespace: metav1.NamespaceSystem,
				Labels: map[string]string{manifestLabel: m.Name, numberLabel: strconv.Itoa(number)},
			},
			Type: historyType, Immutable: ptr.To(true), Data: map[string][]byte{contentKey: part},
		}
		if i == 0 {
			secret.Data[factsKey] = facts
		} else {
			secret.Labels[partLabel] = strconv.Itoa(i)
		}
		if err := s.create(ctx, secret); err != nil {
			return 0, fmt.Errorf("keeping manifest %q in the history: %w", m.Name, err)
		}
	}
	return number, s.retain(ctx, m.Name, append(list, Revision{Number: number}))
}

// create creates a Secret of the history. A run that was killed may have left one with this name.
func (s *Applier) create(ctx context.Context, secret *corev1.Secret) error {
	secrets := s.client.API.CoreV1().Secrets(secret.Namespace)
	return wait.Retry(ctx, func() error {
		_, err := secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: FieldManager})
		if apierrors.IsAlreadyExists(err) {
			if err := secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: FieldManager})
		}
		return err
	})
}

// retain deletes the oldest versions. The newest that ran stays.
func (s *Applier) retain(ctx context.Context, name string, list []Revision) error {
	if len(list) <= versionsKept {
		return nil
	}
	ran := 0
	for _, r := range list {
		if r.Complete {
			ran = r.Number
		}
	}
	for _, r := range list[:len(list)-versionsKept] {
		if r.Number == ran {
			continue
		}
		if err := s.dropHistory(ctx, fmt.Sprintf("%s=%s,%s=%d", manifestLabel, name, numberLabel, r.Number)); err != nil {
			return err
		}
	}
	return nil
}

// dropHistory deletes the Secrets that a selector chooses. The first Secret of a version goes first: without it the others have no meaning.
func (s *Applier) dropHistory(ctx context.Context, selector string) error {
	secrets := s.client.API.CoreV1().Secrets(metav1.NamespaceSystem)
	list, err := wait.List(ctx, secrets.List, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("reading the history: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Secret) int { return len(a.Labels[partLabel]) - len(b.Labels[partLabel]) })
	for _, secret := range list.Items {
		if secret.Type != historyType {
			continue
		}
		err := wait.Retry(ctx, func() error { return secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}) })
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing version %s of manifest %q from the history: %w", secret.Labels[numberLabel], secret.Labels[manifestLabel], err)
		}
	}
	return nil
}

// complete records that the workloads of a version ran.
func (s *Applier) complete(ctx context.Context, name string, number int) error {
	if number == 0 {
		return nil
	}
	secrets := s.client.API.CoreV1().Secrets(metav1.NamespaceSystem)
	have, err := wait.Get(ctx, secrets.Get, secretName(name, number, 0))
	if apierrors.IsNotFound(err) || err == nil && have.Labels[completeLabel] == "true" {
		return nil
	}
	if err == nil {
		err = wait.Retry(ctx, func() error {
			_, err := secrets.Patch(ctx, have.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+completeLabel+`":"true"}}}`), metav1.PatchOptions{})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("recording that manifest %q runs: %w", name, err)
	}
	return nil
}

// manifestOf returns the manifest of a version.
func (s *Applier) manifestOf(ctx context.Context, r Revision) (*Manifest, error) {
	if r.Damaged {
		return nil, r.damage(errors.New("its facts cannot be read"))
	}
	packed := bytes.Clone(r.data)
	for part := 1; part < r.Parts; part++ {
		secret, err := wait.Get(ctx, s.client.API.CoreV1().Secrets(metav1.NamespaceSystem).Get, secretName(r.Manifest, r.Number, part))
		if err != nil {
			return nil, r.damage(err)
		}
		packed = append(packed, secret.Data[contentKey]...)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, r.damage(err)
	}
	data, err := io.ReadAll(io.LimitReader(z, largest+1))
	if err != nil {
		return nil, r.damage(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != r.SHA256 {
		return nil, r.damage(fmt.Errorf("its sha256 is %x, and it was %s when it was kept", sum, r.SHA256))
	}
	return Parse(Manifest{
		Name: r.Manifest, Chart: r.Chart, SHA256: r.SHA256, Namespace: r.Namespace, Bundle: r.Bundle, File: r.File, SiteImages: r.Images, Kubernetes: r.Kubernetes,
	}, data)
}

// Images returns the images that the pods of the manifest name, and the images of its file that it mentions, sorted.
func (m *Manifest) Images() []string {
	site := map[string][]string{} // by the full name
	for _, image := range m.SiteImages {
		if full, err := release.Normalize(image); err == nil {
			site[full] = append(site[full], image)
		}
	}
	names := map[string]bool{}
	mention := func(text string) {
		for word := range strings.FieldsFuncSeq(text, notInReference) {
			word = strings.Trim(word[strings.LastIndex(word, "//")+1:], ".:/@-")
			if full, err := release.Normalize(word); err == nil && strings.ContainsAny(word, ":/@") { // else it is any word
				for _, image := range site[full] {
					names[image] = true
				}
			}
		}
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case string:
			mention(v)
		case map[string]any:
			for _, list := range []string{"containers", "initContainers"} {
				containers, _ := v[list].([]any)
				for _, c := range containers {
					if c, ok := c.(map[string]any); ok {
						if image, ok := c["image"].(string); ok && image != "" {
							names[image] = true
						}
					}
				}
			}
			volumes, _ := v["volumes"].([]any)
			for _, volume := range volumes {
				volume, _ := volume.(map[string]any)
				image, _ := volume["image"].(map[string]any)
				if reference, ok := image["reference"].(string); ok && reference != "" {
					names[reference] = true
				}
			}
			for key, child := range v {
				mention(key)
				visit(child)
			}
		case []any:
			for _, child := range v {
				visit(child)
			}
		}
	}
	for _, o := range m.objects {
		visit(o.Object)
	}
	for _, h := range m.hooks {
		visit(h.object.Object)
	}
	return slices.Sorted(maps.Keys(names))
}

// notInReference reports whether a character ends the name of an image in a text.
func notInReference(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-/:@", c))
}

// NeededImages returns the images that an undo and the manifests themselves need, with what needs them. The hooks of a manifest need images that no
// workload names. damaged are versions whose images are not known.
func NeededImages(ctx context.Context, api kubernetes.Interface) (images map[string]string, damaged []Revision, err error) {
	inventory, err := ReadInventory(ctx, api)
	if err != nil {
		return nil, nil, err
	}
	list, err := readHistory(ctx, api, "")
	if err != nil {
		return nil, nil, err
	}
	damaged = slices.DeleteFunc(slices.Clone(list), func(r Revision) bool { return !r.Damaged })
	list = slices.DeleteFunc(list, func(r Revision) bool { return r.Damaged }) // an undo needs another version, when they are removed
	images = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(inventory)) {
		e := inventory[name]
		before := versionBefore(list, name, e)
		for i := range list {
			r := &list[i]
			for _, image := range r.Images {
				switch {
				case r.Manifest == name && r.Number == e.Revision:
					images[image] = "the manifest " + name + ", or one of its hooks,"
				case r == before && images[image] == "":
					images[image] = "'apply undo' of the manifest " + name
				}
			}
		}
	}
	return images, damaged, nil
}
