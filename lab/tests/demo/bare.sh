# Makes this mount namespace a bare Debian machine, and runs a command on it: what the demo needs is not installed, and no
# list of packages was ever fetched; a repository in a folder has all of it. Usage: bare.sh FOLDER COMMAND...
# What PURELB_BARE_HIDE names is not there, either.
set -eu
folder=$1
shift
packages="bird2 iproute2 libbpf1 libnftables1 libnftnl11 libssh-gcrypt-4 nftables"
mkdir "$folder/repository" "$folder/sources" "$folder/lists"

# pack PACKAGE: the package again, as it is installed here.
pack() {
  home="$folder/pack/$1"
  mkdir -p "$home/DEBIAN"
  dpkg-query -s "$1" | awk '/^[^ ]/ { out = !/^(Status|Conffiles|Config-Version):/ } out' >"$home/DEBIAN/control"
  dpkg-query -L "$1" | while read -r file; do
    [ ! -f "$file" ] || echo "$file"
  done >"$home.files"
  sed 's,^/,,' "$home.files" | tar --create --directory / --files-from - | tar --extract --directory "$home"
  dpkg-deb --build --root-owner-group -Znone "$home" "$folder/repository/$1.deb" >/dev/null
  cat "$home/DEBIAN/control"
  echo "Filename: ./$1.deb"
  echo "Size: $(stat -c %s "$folder/repository/$1.deb")"
  echo "SHA256: $(sha256sum "$folder/repository/$1.deb" | cut -d ' ' -f 1)"
  echo
}
for package in $packages; do pack "$package"; done >"$folder/repository/Packages"
echo "deb [trusted=yes] file:$folder/repository ./" >"$folder/sources/only.list"
chmod -R a+rX "$folder/repository" "$folder/sources"

# Folders of programs without those of the packages: links to all others. What is nothing cannot be loaded, either.
nothing() { mount --bind /dev/null "$1"; }
without() {
  real="$folder/real/$1" shown="$folder/shown/$1"
  mkdir -p "$real" "$shown"
  mount --bind "$1" "$real"
  cp --recursive --symbolic-link "$real/." "$shown"
  for program in $(cat "$folder"/pack/*.files | grep -E '/s?bin/') /kubectl ${PURELB_BARE_HIDE:+"/$PURELB_BARE_HIDE"}; do rm -f "$shown/${program##*/}"; done
  mount --bind "$shown" "$1"
}
for folder_of_programs in /usr/bin /usr/sbin; do without "$folder_of_programs"; done
for file in $(cat "$folder"/pack/*.files | grep '/lib/.*\.so'); do [ -L "$file" ] || nothing "$file"; done
awk -v gone=" $packages " 'BEGIN { RS = ""; ORS = "\n\n" } !index(gone, " " $2 " ")' /var/lib/dpkg/status >"$folder/status"
mount --bind "$folder/status" /var/lib/dpkg/status
mount --bind "$folder/sources" /etc/apt/sources.list.d
[ ! -e /etc/apt/sources.list ] || nothing /etc/apt/sources.list
mount --bind "$folder/lists" /var/lib/apt/lists
exec "$@"
