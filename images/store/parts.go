package store

// Names are the image names in containerd.
type Names struct{ store *Store }

// Names returns the methods of this store for that subject.
func (s *Store) Names() Names { return Names{s} }

// Pods are the pods and containers on the host, as the CRI has them.
type Pods struct{ store *Store }

// PodRecords returns the methods of this store for that subject.
func (s *Store) PodRecords() Pods { return Pods{s} }

// Inventory lists the images in containerd.
type Inventory struct{ store *Store }

// Inventory returns the methods of this store for that subject.
func (s *Store) Inventory() Inventory { return Inventory{s} }

// publication makes an imported image visible to the CRI.
type publication struct{ store *Store }

// publication returns the methods of this store for that subject.
func (s *Store) publication() publication { return publication{s} }
