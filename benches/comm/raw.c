// The same exchanges with MPI's blocking calls. Prints "name bytes ns", one exchange each, from rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank;

static void report(const char *name, long bytes, double seconds, long exchanges) {
    if (rank == 0) printf("%s %ld %.1f\n", name, bytes, 1e9 * seconds / exchanges);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int at = 1; at + 1 < argc; at += 2) {
        long bytes = atol(argv[at]), rounds = atol(argv[at + 1]);
        double *out = malloc(bytes), *in = malloc(bytes);
        memset(out, 1, bytes);
        memset(in, 1, bytes);
        double begin = 0;
        for (long round = -rounds / 10 - 1; round < rounds; round++) {
            if (round == 0) {
                MPI_Barrier(MPI_COMM_WORLD);
                begin = MPI_Wtime();
            }
            if (rank == 0) {
                MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(in, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            }
        }
        report("ping-pong", bytes, MPI_Wtime() - begin, 2 * rounds);
        for (long round = -rounds / 10 - 1; round < rounds; round++) {
            if (round == 0) {
                MPI_Barrier(MPI_COMM_WORLD);
                begin = MPI_Wtime();
            }
            MPI_Allreduce(out, in, bytes / sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
        report("all-reduce", bytes, MPI_Wtime() - begin, rounds);
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
