/* Prints the addresses that the C library finds for a name, one a line. It asks as most
 * programs do: for both families at once. */
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
	char text[64];

	if (argc != 2) {
		fprintf(stderr, "usage: lookup NAME\n");
		return 1;
	}
	int err = getaddrinfo(argv[1], "80", &hints, &list);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(err));
		return 2; /* as getent does */
	}
	for (a = list; a; a = a->ai_next)
		if (!getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST))
			puts(text);
	return 0;
}
